package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tonbo-go/tonbo"
)

// tempDir stands for a machine's disk.
func tempDir() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "tonbo-example-")
	if err != nil {
		log.Fatal(err)
	}
	return dir, func() { os.RemoveAll(dir) }
}

// A run's database survives the machine that it was on.
func ExampleOpen() {
	ctx := context.Background()
	dir, remove := tempDir()
	defer remove()
	const url = "mem://example-open" // in a program: s3://bucket/prefix, or file:///dir

	if _, err := tonbo.Create(ctx, "run-42", tonbo.Options{URL: url}); err != nil {
		log.Fatal(err)
	}
	db, err := tonbo.Open(ctx, "run-42", tonbo.Options{URL: url, Dir: filepath.Join(dir, "machine-1")})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE steps(id INTEGER PRIMARY KEY, result TEXT); INSERT INTO steps(result) VALUES('42')"); err != nil {
		log.Fatal(err)
	}
	if err := db.Synced(ctx); err != nil { // nil: whatever happens to this machine now, the step is not lost
		log.Fatal(err)
	}

	elsewhere, err := tonbo.Open(ctx, "run-42", tonbo.Options{URL: url, Dir: filepath.Join(dir, "machine-2")})
	if err != nil {
		log.Fatal(err)
	}
	defer elsewhere.Close()
	var result string
	if err := elsewhere.QueryRow("SELECT result FROM steps WHERE id = 1").Scan(&result); err != nil {
		log.Fatal(err)
	}
	fmt.Println(result)
	// Output: 42
}

// What leaves the process, such as an answer to a user, leaves it after what it rests on is safe.
func ExampleDB_Gate() {
	ctx := context.Background()
	dir, remove := tempDir()
	defer remove()
	o := tonbo.Options{URL: "mem://example-gate", Dir: dir}
	if _, err := tonbo.Create(ctx, "orders", o); err != nil {
		log.Fatal(err)
	}
	db, err := tonbo.Open(ctx, "orders", o)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE orders(item TEXT)"); err != nil {
		log.Fatal(err)
	}

	err = db.Gate(ctx, func() error {
		_, err := db.ExecContext(ctx, "INSERT INTO orders VALUES('tea')")
		return err
	})
	if err != nil {
		log.Fatal(err) // not acknowledged: say nothing to the customer
	}
	fmt.Println("ordered;", db.Status().PendingCommits, "commits not shipped")
	// Output: ordered; 0 commits not shipped
}

// A program that knows nothing but database/sql uses the driver "tonbo"; From reaches Synced where it is wanted.
func ExampleFrom() {
	ctx := context.Background()
	dir, remove := tempDir()
	defer remove()
	if _, err := tonbo.Create(ctx, "run-42", tonbo.Options{URL: "mem://example-from"}); err != nil {
		log.Fatal(err)
	}

	// $TONBO_URL and $TONBO_DIR stand in for parameters that are not given.
	db, err := sql.Open("tonbo", "tonbo:run-42?url=mem://example-from&dir="+dir)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.PingContext(ctx); err != nil { // takes the database over
		log.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE t(v); INSERT INTO t VALUES(7)"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(tonbo.From(db).Synced(ctx))
	// Output: <nil>
}

// Of several processes that open a database only the last can commit. The others are told, and what they could not ship is in a file.
func ExampleFencedError() {
	ctx := context.Background()
	dir, remove := tempDir()
	defer remove()
	const url = "mem://example-fenced"
	if _, err := tonbo.Create(ctx, "run-42", tonbo.Options{URL: url}); err != nil {
		log.Fatal(err)
	}
	first, err := tonbo.Open(ctx, "run-42", tonbo.Options{URL: url, Dir: filepath.Join(dir, "1"), Owner: "sandbox 1"})
	if err != nil {
		log.Fatal(err)
	}
	defer first.Close()
	if _, err := first.Exec("CREATE TABLE t(v); INSERT INTO t VALUES('not shipped')"); err != nil {
		log.Fatal(err)
	}
	second, err := tonbo.Open(ctx, "run-42", tonbo.Options{URL: url, Dir: filepath.Join(dir, "2"), Owner: "sandbox 2"})
	if err != nil {
		log.Fatal(err)
	}
	defer second.Close()

	err = first.Synced(ctx)
	var fenced *tonbo.FencedError
	if errors.As(err, &fenced) {
		fmt.Println("taken over by", fenced.By)
		lost, err := sql.Open("sqlite3", fenced.Lost) // plain SQLite
		if err != nil {
			log.Fatal(err)
		}
		defer lost.Close()
		var v string
		if err := lost.QueryRow("SELECT v FROM t").Scan(&v); err != nil {
			log.Fatal(err)
		}
		fmt.Println("set aside:", v)
	}
	_, err = first.Exec("INSERT INTO t VALUES('late')")
	fmt.Println("COMMIT refused:", errors.Is(err, tonbo.ErrFenced))
	// Output:
	// taken over by sandbox 2
	// set aside: not shipped
	// COMMIT refused: true
}
