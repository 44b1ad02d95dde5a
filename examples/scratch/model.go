package main

import (
	"context"
	"fmt"

	"github.com/tonbo-go/tonbo"
)

// session is what a model did when it was given a task: recorded, with what it thought.
type session struct {
	task  string
	calls []call
}

// call is one statement that the model ran, and why.
type call struct{ thought, sql string }

var sessions = []session{
	{"Deprecated names should not be suggested any more.", []call{
		{"Let me see how many there are.", `SELECT count(*) FROM symbols WHERE doc LIKE '%Deprecated:%'`},
		{"I remove the deprecated ones, and rebuild the table without them.", `CREATE TABLE keep AS SELECT * FROM symbols WHERE doc LIKE '%Deprecated%' IS NULL`},
		{"Now I swap the tables.", `DELETE FROM symbols`},
		{"And put back what I kept.", `INSERT INTO symbols SELECT * FROM keep`},
		{"Clean up.", `DROP TABLE keep`},
	}},
	{"Deprecated names should not be suggested any more. Do not delete anything.", []call{
		{"A flag that suggestions can go by.", `ALTER TABLE symbols ADD COLUMN deprecated INTEGER NOT NULL DEFAULT 0`},
		{"Set it where the documentation says so.", `UPDATE symbols SET deprecated = 1 WHERE doc LIKE '%Deprecated:%'`},
		{"Suggestions read this view.", `CREATE VIEW suggestions AS SELECT package, name, signature FROM symbols WHERE NOT deprecated`},
	}},
	{"Mark what is documented as unsafe for concurrent use.", []call{
		{"I say so at the beginning of the documentation.", `UPDATE symbols SET doc = '[not safe for concurrent use] ' || doc WHERE doc LIKE '%not safe for concurrent use%' OR name = 'Builder'`},
	}},
}

// work runs the model's statements. What they do is the model's business: the database is its own.
func (s session) work(ctx context.Context, db *tonbo.DB, say func(format string, args ...any)) error {
	for _, c := range s.calls {
		r, err := db.ExecContext(ctx, c.sql)
		if err != nil {
			return fmt.Errorf("%s: %w", c.sql, err)
		}
		rows, err := r.RowsAffected()
		if err != nil {
			return err
		}
		say("  model: %s", c.thought)
		say("         %s  -- %d rows", c.sql, rows)
	}
	return nil
}
