package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"path/filepath"

	"github.com/tonbo-go/tonbo"
)

// Work is done on a fork, looked at, and then brought to the database that it was forked from.
func ExamplePromote() {
	ctx := context.Background()
	dir, remove := tempDir()
	defer remove()
	o := tonbo.Options{URL: "mem://example-promote", Dir: filepath.Join(dir, "owner")}
	if _, err := tonbo.Create(ctx, "stock", o); err != nil {
		log.Fatal(err)
	}
	stock, err := tonbo.Open(ctx, "stock", o)
	if err != nil {
		log.Fatal(err)
	}
	defer stock.Close()
	if _, err := stock.Exec("CREATE TABLE stock(id INTEGER PRIMARY KEY, name TEXT, n INTEGER); INSERT INTO stock(name, n) VALUES('pears', 10), ('plums', 20)"); err != nil {
		log.Fatal(err)
	}
	before, err := stock.Checkpoint(ctx, "before the agent")
	if err != nil {
		log.Fatal(err)
	}

	// An agent gets a fork.
	client, err := tonbo.NewClient(tonbo.Options{URL: "mem://example-promote", Dir: filepath.Join(dir, "agent")})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Fork(ctx, "stock", "scratch", tonbo.ForkOptions{}); err != nil {
		log.Fatal(err)
	}
	scratch, err := client.Open(ctx, "scratch")
	if err != nil {
		log.Fatal(err)
	}
	defer scratch.Close()
	if _, err := scratch.Exec("UPDATE stock SET n = n - 3 WHERE name = 'pears'; INSERT INTO stock(name, n) VALUES('figs', 5)"); err != nil {
		log.Fatal(err)
	}

	// What did it do?
	changes, err := tonbo.Diff(ctx, tonbo.Ref{Client: client, Name: "stock", At: before}, scratch)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range changes.Tables {
		inserted, updated, deleted := t.Count()
		fmt.Printf("%s: %d inserted, %d updated, %d deleted\n", t.Name, inserted, updated, deleted)
	}
	few := func(cs *tonbo.ChangeSet) error {
		if _, _, deleted := cs.Count(); deleted > 10 {
			return errors.New("a person has to look at this")
		}
		return nil
	}
	if _, err := tonbo.Promote(ctx, stock, changes, tonbo.PromoteOptions{Approve: few}); err != nil {
		log.Fatal(err)
	}
	var n int
	if err := stock.QueryRow("SELECT sum(n) FROM stock").Scan(&n); err != nil {
		log.Fatal(err)
	}
	fmt.Println("in stock:", n)
	// Output:
	// stock: 1 inserted, 1 updated, 0 deleted
	// in stock: 32
}
