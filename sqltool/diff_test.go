package sqltool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/sqltool"
)

// run42 is a new database run-42, and its client.
func run42(t *testing.T, sql ...string) (*tonbo.Client, *tonbo.DB) {
	t.Helper()
	ctx := context.Background()
	client, err := tonbo.NewClient(tonbo.Options{Remote: mem.New("test"), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(ctx, "run-42", tonbo.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	db, err := client.Open(ctx, "run-42")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, q := range sql {
		if _, err := db.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	return client, db
}

func since(tool *sqltool.Tool, label string) (string, error) {
	out, err := tool.Call(context.Background(), json.RawMessage(fmt.Sprintf(`{"label":%q}`, label)))
	return string(out), err
}

func TestDiffTellsWhatChangedSinceALabelAndSinceTheStart(t *testing.T) {
	ctx := context.Background()
	client, db := run42(t, `CREATE TABLE orders(id INTEGER PRIMARY KEY, status TEXT, raw)`, `INSERT INTO orders SELECT value, 'pending', x'00ff' FROM generate_series(1, 1000)`,
		`CREATE TABLE _tonbo_meta(key PRIMARY KEY, value)`)
	start, err := db.Checkpoint(ctx, "program")
	if err != nil {
		t.Fatal(err)
	}
	tool, err := sqltool.Diff(client, db, "model/", tonbo.Ref{Client: client, Name: "run-42", At: start}, sqltool.Limits{Rows: 2})
	if err != nil {
		t.Fatal(err)
	}
	if !tool.ReadOnly || tool.Destructive || tool.Name != "diff" {
		t.Errorf("got %+v", tool)
	}
	if out, err := since(tool, ""); err != nil || out != `{"schema":[],"tables":[]}` {
		t.Errorf("nothing has changed: %s, %v", out, err)
	}
	run := newTool(t, db, sqltool.Limits{})
	call(run, `UPDATE orders SET status = 'paid' WHERE id = 1`)
	if out, err := since(sqltool.Checkpoint(db, "model/"), "before"); err != nil {
		t.Fatal(out)
	}
	call(run, `DELETE FROM orders`)
	call(run, `CREATE TABLE notes(body)`)
	call(run, `INSERT INTO notes VALUES('a'), ('a')`)
	if _, err := db.Exec(`INSERT INTO _tonbo_meta VALUES('k', 'hidden')`); err != nil { // not shipped yet
		t.Fatal(err)
	}
	for label, want := range map[string]string{
		"before": `{"schema":[{"op":"create","type":"table","name":"notes","sql":"CREATE TABLE notes(body)"}],"tables":[` +
			`{"table":"orders","inserted":0,"updated":0,"deleted":1000,"columns":["id","status","raw"],"rows":[{"op":"delete","before":[1,"paid",{"blob":"00ff"}]},{"op":"delete","before":[2,"pending",{"blob":"00ff"}]}]},` +
			`{"table":"notes","inserted":2,"updated":0,"deleted":0,"columns":["body"],"rows":[]}],"truncated":true}`,
		"": `{"schema":[{"op":"create","type":"table","name":"notes","sql":"CREATE TABLE notes(body)"}],"tables":[` +
			`{"table":"orders","inserted":0,"updated":0,"deleted":1000,"columns":["id","status","raw"],"rows":[{"op":"delete","before":[1,"pending",{"blob":"00ff"}]},{"op":"delete","before":[2,"pending",{"blob":"00ff"}]}]},` +
			`{"table":"notes","inserted":2,"updated":0,"deleted":0,"columns":["body"],"rows":[]}],"truncated":true}`,
	} {
		if out, err := since(tool, label); err != nil || out != want {
			t.Errorf("since %q: got %v\n%s\nwant\n%s", label, err, out, want)
		}
	}
	var e *sqltool.Error
	for _, l := range []string{"program", "other", strings.Repeat("x", 300), "a\x01b"} {
		if out, err := since(tool, l); !errors.As(err, &e) {
			t.Errorf("since %.20q: %s, %v", l, out, err)
		}
	}
	if out, err := tool.Call(ctx, nil); err != nil || !strings.Contains(string(out), `"deleted":1000`) {
		t.Errorf("without a label: %s, %v", out, err)
	}
	for _, in := range []string{`{"label":1}`, `{"label":"before","database":"other"}`, `[]`} {
		if out, err := tool.Call(ctx, json.RawMessage(in)); !errors.As(err, &e) {
			t.Errorf("%s: %s, %v", in, out, err)
		}
	}
}

func TestDiffStaysWithinItsLimits(t *testing.T) {
	client, db := run42(t)
	if out, err := since(sqltool.Checkpoint(db, ""), "start"); err != nil {
		t.Fatal(out)
	}
	for _, q := range []string{`CREATE TABLE t(a INTEGER PRIMARY KEY, b)`, `INSERT INTO t SELECT value, hex(randomblob(4000)) FROM generate_series(1, 400)`} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		l    sqltool.Limits
		want string
	}{
		"bytes":  {sqltool.Limits{Bytes: 4000, Rows: 400}, `"truncated":true`},
		"cells":  {sqltool.Limits{CellBytes: 10, Bytes: 4000}, `"bytes":8000`},
		"memory": {sqltool.Limits{Memory: 8 << 20, ValueBytes: 2 << 20, Rows: 400}, "out of memory"},
		"time":   {sqltool.Limits{Time: 1}, "stopped: a call may take 1ns"},
	} {
		tool, err := sqltool.Diff(client, db, "", nil, test.l)
		if err != nil {
			t.Fatal(err)
		}
		out, err := since(tool, "start")
		var e *sqltool.Error
		if !strings.Contains(out, test.want) || len(out) > 5000 || !json.Valid([]byte(out)) || err != nil && !errors.As(err, &e) {
			t.Errorf("%s: got %.300s, %v", name, out, err)
		}
		if out, err := since(tool, ""); err == nil {
			t.Errorf("%s: no start was given: %.100s", name, out)
		}
	}
}
