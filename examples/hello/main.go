// Command hello is the program of the README: run it on one machine, then on another.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/tonbo-go/tonbo"
)

func main() {
	ctx := context.Background()
	client, err := tonbo.NewClient(tonbo.Options{}) // where databases live: $TONBO_URL
	check(err)
	_, err = client.Create(ctx, "run-42", tonbo.CreateOptions{IfNotExists: true})
	check(err)
	db, err := client.Open(ctx, "run-42") // we are the owner now; db is a *sql.DB
	check(err)
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS steps(id INTEGER PRIMARY KEY, done TEXT);
		INSERT INTO steps(done) VALUES(datetime('now'))`)
	check(err)
	check(db.Synced(ctx)) // from here on the step outlives this machine
	var n int
	check(db.QueryRow(`SELECT count(*) FROM steps`).Scan(&n))
	fmt.Println("steps so far:", n)
	check(db.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
