package tonbo_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"path/filepath"

	"github.com/tonbo-go/tonbo"
)

// threeSteps makes a database of three steps, each a labelled point. A program would do with one of the calls below what it needs.
func threeSteps(ctx context.Context, name string, o tonbo.Options) *tonbo.DB {
	if _, err := tonbo.Create(ctx, name, o); err != nil {
		log.Fatal(err)
	}
	db, err := tonbo.Open(ctx, name, o)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE steps(id INTEGER PRIMARY KEY, result TEXT)"); err != nil {
		log.Fatal(err)
	}
	for i, result := range []string{"plan", "draft", "mistake"} {
		if _, err := db.Exec("INSERT INTO steps(result) VALUES(?)", result); err != nil {
			log.Fatal(err)
		}
		if _, err := db.Checkpoint(ctx, fmt.Sprint("step-", i+1)); err != nil {
			log.Fatal(err)
		}
	}
	return db
}

func lastStep(db *tonbo.DB) (result string) {
	if err := db.QueryRow("SELECT result FROM steps ORDER BY id DESC LIMIT 1").Scan(&result); err != nil {
		log.Fatal(err)
	}
	return result
}

// A checkpoint is an acknowledgement whose state can be found again by its name, while the run goes on.
func ExampleDB_Checkpoint() {
	ctx := context.Background()
	dir, remove := tempDir()
	defer remove()
	o := tonbo.Options{URL: "mem://example-checkpoint", Dir: dir}
	if _, err := tonbo.Create(ctx, "run-42", o); err != nil {
		log.Fatal(err)
	}
	db, err := tonbo.Open(ctx, "run-42", o)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE steps(id INTEGER PRIMARY KEY, result TEXT); INSERT INTO steps(result) VALUES('plan')"); err != nil {
		log.Fatal(err)
	}
	point, err := db.Checkpoint(ctx, "planned")
	if err != nil { // not acknowledged
		log.Fatal(err)
	}
	if _, err := db.Exec("DELETE FROM steps"); err != nil {
		log.Fatal(err)
	}

	o.At = tonbo.Label("planned") // or point itself, tonbo.Slot(point.Slot), tonbo.Time(point.Time)
	past, err := tonbo.OpenReadOnly(ctx, "run-42", o)
	if err != nil {
		log.Fatal(err)
	}
	defer past.Close()
	fmt.Println(point.Label+":", lastStep(past))
	// Output: planned: plan
}

// A reader follows a run without disturbing it.
func ExampleOpenReadOnly() {
	ctx := context.Background()
	dir, remove := tempDir()
	defer remove()
	o := tonbo.Options{URL: "mem://example-readonly", Dir: dir}
	owner := threeSteps(ctx, "run-42", o)
	defer owner.Close()

	reader, err := tonbo.OpenReadOnly(ctx, "run-42", o) // with Options.Follow it looks for newer points by itself
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	fmt.Println(lastStep(reader))

	if _, err := owner.Exec("INSERT INTO steps(result) VALUES('mended')"); err != nil {
		log.Fatal(err)
	}
	if err := owner.Synced(ctx); err != nil { // still the owner
		log.Fatal(err)
	}
	if err := reader.Refresh(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(lastStep(reader))
	// Output:
	// mistake
	// mended
}

// A fork begins at any point of a run, and costs the same however large the database is.
func ExampleClient_Fork() {
	ctx := context.Background()
	dir, remove := tempDir()
	defer remove()
	o := tonbo.Options{URL: "mem://example-fork", Dir: dir}
	run := threeSteps(ctx, "run-42", o)
	defer run.Close()

	client, err := tonbo.NewClient(o)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Fork(ctx, "run-42", "second-try", tonbo.ForkOptions{At: tonbo.Label("step-2")}); err != nil {
		log.Fatal(err)
	}
	fork, err := client.Open(ctx, "second-try")
	if err != nil {
		log.Fatal(err)
	}
	defer fork.Close()
	if _, err := fork.Exec("INSERT INTO steps(result) VALUES('done')"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("fork:", lastStep(fork))
	fmt.Println("run:", lastStep(run))
	// Output:
	// fork: done
	// run: mistake
}

// A rewind takes a run back to a point, and can itself be undone.
func ExampleClient_Rewind() {
	ctx := context.Background()
	dir, remove := tempDir()
	defer remove()
	o := tonbo.Options{URL: "mem://example-rewind", Dir: dir}
	db := threeSteps(ctx, "run-42", o)
	defer db.Close()

	client, err := tonbo.NewClient(o)
	if err != nil {
		log.Fatal(err)
	}
	before, err := client.Rewind(ctx, "run-42", tonbo.Label("step-2"))
	if err != nil {
		log.Fatal(err)
	}
	// The owner is fenced: Synced and COMMIT would return ErrFenced. Here it takes the database back.
	if err := db.Reopen(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(lastStep(db))

	if _, err := client.Rewind(ctx, "run-42", before); err != nil { // undone
		log.Fatal(err)
	}
	if err := db.Reopen(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(lastStep(db))
	// Output:
	// draft
	// mistake
}

// An export is a plain SQLite file, of any point, while the run goes on.
func ExampleClient_Export() {
	ctx := context.Background()
	dir, remove := tempDir()
	defer remove()
	o := tonbo.Options{URL: "mem://example-export", Dir: filepath.Join(dir, "machine")}
	db := threeSteps(ctx, "run-42", o)
	defer db.Close()

	client, err := tonbo.NewClient(o)
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer // in a program: an *os.File
	if err := client.Export(ctx, "run-42", tonbo.Label("step-2"), &file); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", file.Bytes()[:15])
	// Output: "SQLite format 3"
}

// The history of a run tells what happened, the newest first.
func ExampleClient_History() {
	ctx := context.Background()
	dir, remove := tempDir()
	defer remove()
	o := tonbo.Options{URL: "mem://example-history", Dir: dir}
	if err := threeSteps(ctx, "run-42", o).Close(); err != nil {
		log.Fatal(err)
	}
	client, err := tonbo.NewClient(o)
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range client.History(ctx, "run-42") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s %q\n", e.Slot, e.Kind, e.Label)
	}
	// Output:
	// 6 close ""
	// 5 commit "step-3"
	// 4 commit "step-2"
	// 3 commit "step-1"
	// 2 claim ""
	// 1 create ""
}
