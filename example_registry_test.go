package tonbo_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tonbo-go/tonbo"
)

// A program that serves many agents, each with a database of its own, keeps two of them open.
func ExampleRegistry() {
	ctx := context.Background()
	dir, remove := tempDir()
	defer remove()
	client, err := tonbo.NewClient(tonbo.Options{URL: "mem://example-registry", Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	registry := tonbo.NewRegistry(client, tonbo.RegistryOptions{
		MaxOpen: 2,
		Create: func(ctx context.Context, name string) error {
			_, err := client.Create(ctx, name, tonbo.CreateOptions{})
			return err
		},
		Prepare: func(ctx context.Context, db *tonbo.DB) error {
			_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS notes(id INTEGER PRIMARY KEY, note TEXT)")
			return err
		},
	})
	for round := range 2 {
		for _, agent := range []string{"ada", "bo", "cyd"} {
			err := registry.Use(ctx, agent, func(ctx context.Context, db *tonbo.DB) error {
				if _, err := db.ExecContext(ctx, "INSERT INTO notes(note) VALUES(?)", fmt.Sprint("round ", round)); err != nil {
					return err
				}
				return db.Synced(ctx) // the note outlives this machine
			})
			if err != nil {
				log.Fatal(err)
			}
		}
	}
	stats := registry.Stats()
	fmt.Println(stats.Open, "open,", stats.OpenedCold+stats.OpenedWarm, "openings,", stats.Evicted, "closed for others")
	if err := registry.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: 2 open, 6 openings, 4 closed for others
}
