package sqltool_test

import (
	"context"
	"encoding/json"
	"testing"

	"go.uber.org/goleak"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/sqltool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database is a new database, called run-42.
func database(t testing.TB, sql ...string) *tonbo.DB {
	t.Helper()
	ctx := context.Background()
	o := tonbo.Options{Remote: mem.New("test"), Dir: t.TempDir()}
	if _, err := tonbo.Create(ctx, "run-42", o); err != nil {
		t.Fatal(err)
	}
	db, err := tonbo.Open(ctx, "run-42", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, q := range sql {
		if _, err := db.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	return db
}

func newTool(t testing.TB, db *tonbo.DB, l sqltool.Limits) *sqltool.Tool {
	t.Helper()
	tool, err := sqltool.New(db, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tool.Close(); err != nil {
			t.Error(err)
		}
	})
	return tool
}

func input(sql string) json.RawMessage {
	b, err := json.Marshal(map[string]string{"sql": sql})
	if err != nil {
		panic(err)
	}
	return b
}

func call(tool *sqltool.Tool, sql string) (string, error) {
	out, err := tool.Call(context.Background(), input(sql))
	return string(out), err
}

// takenOver is a database with a table t(a), and a function by which another process takes it over.
func takenOver(t *testing.T) (*tonbo.DB, func()) {
	t.Helper()
	ctx := context.Background()
	store := mem.New("test")
	o := tonbo.Options{Remote: store, Dir: t.TempDir()}
	if _, err := tonbo.Create(ctx, "run-42", o); err != nil {
		t.Fatal(err)
	}
	db, err := tonbo.Open(ctx, "run-42", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec(`CREATE TABLE t(a)`); err != nil {
		t.Fatal(err)
	}
	if err := db.Synced(ctx); err != nil {
		t.Fatal(err)
	}
	return db, func() {
		other, err := tonbo.Open(ctx, "run-42", tonbo.Options{Remote: store, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
