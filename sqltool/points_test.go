package sqltool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/sqltool"
)

func TestSchemaIsDescribedWithoutTonbosTables(t *testing.T) {
	db := contained(t)
	tool, err := sqltool.DescribeSchema(db, sqltool.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Close()
	for _, in := range []string{``, `{}`} {
		out, err := tool.Call(context.Background(), json.RawMessage(in))
		if want := `{"columns":["type","name","sql"],"rows":[["table","notes","CREATE VIRTUAL TABLE notes USING fts5(body)"],["table","t","CREATE TABLE t(a INTEGER PRIMARY KEY, b, c)"]]}`; err != nil || string(out) != want {
			t.Errorf("got %s, %v", out, err)
		}
	}
	var e *sqltool.Error
	if out, err := tool.Call(context.Background(), json.RawMessage(`{"sql":"DROP TABLE t"}`)); !errors.As(err, &e) {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestModelRewindsToItsOwnCheckpoints(t *testing.T) {
	ctx := context.Background()
	client, db := run42(t)
	if _, err := db.Checkpoint(ctx, "program"); err != nil {
		t.Fatal(err)
	}
	run, checkpoint := newTool(t, db, sqltool.Limits{}), sqltool.Checkpoint(db, "model/")
	rewind := sqltool.Rewind(client, db, "model/", run)
	label := since
	call(run, `CREATE TABLE t(a)`)
	if out, err := label(checkpoint, "start"); err != nil || out != `{"checkpoint":"start"}` {
		t.Fatal(out, err)
	}
	call(run, `INSERT INTO t VALUES(1)`)
	var e *sqltool.Error
	for _, l := range []string{"program", "other", "", strings.Repeat("x", 300)} {
		if out, err := label(rewind, l); !errors.As(err, &e) {
			t.Errorf("rewind to %.20q: %s, %v", l, out, err)
		}
	}
	if out, err := label(checkpoint, "a\x01b"); !errors.As(err, &e) {
		t.Errorf("got %s, %v", out, err)
	}
	if out, err := label(rewind, "start"); err != nil || out != `{"rewound":"start"}` {
		t.Fatal(out, err)
	}
	if out, err := call(run, `SELECT count(*) FROM t`); err != nil || out != `{"columns":["count(*)"],"rows":[[0]]}` {
		t.Errorf("got %s, %v", out, err)
	}
}

// BenchmarkDescribeSchema describes 200 tables.
func BenchmarkDescribeSchema(b *testing.B) {
	db := database(b)
	for i := range 200 {
		if _, err := db.Exec(fmt.Sprintf(`CREATE TABLE table_%d(id INTEGER PRIMARY KEY, name TEXT NOT NULL, amount REAL, parent REFERENCES table_%d, created_at TEXT)`, i, i)); err != nil {
			b.Fatal(err)
		}
	}
	tool, err := sqltool.DescribeSchema(db, sqltool.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	defer tool.Close()
	for b.Loop() {
		if out, err := tool.Call(context.Background(), nil); err != nil {
			b.Fatal(string(out))
		}
	}
}
