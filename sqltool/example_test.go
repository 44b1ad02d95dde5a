package sqltool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/sqltool"
)

func ExampleNew() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(dir)
	client, err := tonbo.NewClient(tonbo.Options{Remote: mem.New("example"), Dir: dir})
	check(err)
	_, err = client.Create(ctx, "golden", tonbo.CreateOptions{})
	check(err)
	golden, err := client.Open(ctx, "golden")
	check(err)
	_, err = golden.Exec(`CREATE TABLE orders(id INTEGER PRIMARY KEY, status TEXT); INSERT INTO orders(status) VALUES('pending'), ('paid')`)
	check(err)
	check(golden.Close())

	err = tonbo.Scratch(ctx, client, "golden", "reconcile refunds", func(ctx context.Context, db *tonbo.DB) error {
		tool, err := sqltool.New(db, sqltool.Limits{})
		if err != nil {
			return err
		}
		defer tool.Close()
		for _, fromModel := range []string{
			`{"sql": "SELECT id, stauts FROM orders"}`,
			`{"sql": "DELETE FROM orders WHERE status = 'pending' OR TRUE"}`,
			`{"sql": "ATTACH '/var/lib/prod.db' AS prod"}`,
			`{"sql": "SELECT 1", "database": "prod"}`,
		} {
			out, _ := tool.Call(ctx, json.RawMessage(fromModel)) // an error that is no *sqltool.Error would be ours
			fmt.Println(string(out))
		}
		return nil
	})
	check(err)
	// Output:
	// {"error":{"message":"no such column: stauts","near":"stauts FROM orders","line":1,"column":12,"hint":"did you mean orders.status?"}}
	// {"changes":2}
	// {"error":{"message":"ATTACH, DETACH and VACUUM are not available"}}
	// {"error":{"message":"unknown property \"database\": the input must be a JSON object with exactly these properties, all strings: sql"}}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
