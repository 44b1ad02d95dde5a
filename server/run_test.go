package server_test

import (
	"errors"
	"testing"

	"github.com/tonbo-go/tonbo"
)

// The run of an agent as it is documented: an orchestrator with a member's key, a sandbox with a narrowed one and nothing else, over HTTP from end to end.
func TestRunsDatabaseThroughTheServer(t *testing.T) {
	w := newWorld(t)
	orchestrator := w.key(`{"name":"first","agent":"orchestrator","role":"member"}`)
	w.want(201, "POST", "/v1/databases", orchestrator, `{"name":"run-42"}`, "Idempotency-Key", "run-42")
	w.want(201, "POST", "/v1/databases", orchestrator, `{"name":"run-43"}`)
	key := w.want(201, "POST", "/v1/api-keys", orchestrator, `{"name":"run-42-sandbox","databases":["run-42"]}`)

	// The sandbox: its environment is all that it has.
	t.Setenv("TONBO_URL", w.url)
	t.Setenv("TONBO_API_KEY", key.text("secret"))
	open := func(name string) (*tonbo.DB, error) {
		return tonbo.Open(t.Context(), name, tonbo.Options{Dir: t.TempDir()}) // a machine of its own each time
	}
	step := func(db *tonbo.DB) {
		t.Helper()
		if _, err := db.Exec("CREATE TABLE IF NOT EXISTS steps(id INTEGER PRIMARY KEY, body TEXT); INSERT INTO steps(body) VALUES ('done')"); err != nil {
			t.Fatal(err)
		}
		if err := db.Synced(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first, err := open("run-42")
	if err != nil {
		t.Fatal(err)
	}
	step(first)
	step(first)
	// Another machine takes over, and has every step.
	db, err := open("run-42")
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := db.QueryRow("SELECT count(*) FROM steps").Scan(&n); err != nil || n != 2 {
		t.Error(n, err)
	}
	step(db)
	if err := first.Synced(t.Context()); !errors.Is(err, tonbo.ErrFenced) {
		t.Error("the one that was taken over:", err)
	}
	first.Close() // fenced: nothing of it is left to ship
	// What it does not reach looks as if it were not there.
	for _, name := range []string{"run-43", "run-44"} {
		if _, err := open(name); !errors.Is(err, tonbo.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := tonbo.NewClient(tonbo.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), "run-42"); !errors.Is(err, tonbo.ErrForbidden) {
		t.Error("a sandbox deletes its database:", err)
	}
	if _, err := c.Create(t.Context(), "run-42-b", tonbo.CreateOptions{}); err == nil {
		t.Error("a sandbox creates a database")
	}
	// The orchestrator sees what the sandbox has done.
	a := w.want(200, "POST", "/v1/databases/run-42/query", orchestrator, `{"sql":"SELECT count(*) FROM steps"}`)
	if rows, _ := a.field("rows").([]any); len(rows) != 1 {
		t.Errorf("%s", a.Body)
	}
	// Revoked in the middle of the run: the writer is told so, and is not fenced; the key rotated, another one goes on.
	next := w.want(200, "POST", "/v1/api-keys/"+key.text("id")+"/rotate", orchestrator, "")
	if _, err := db.Exec("INSERT INTO steps(body) VALUES ('not shipped')"); err != nil {
		t.Fatal(err)
	}
	if err := db.Synced(t.Context()); !errors.Is(err, tonbo.ErrUnauthorized) || errors.Is(err, tonbo.ErrFenced) {
		t.Error("with a key that was rotated:", err)
	}
	if err := db.Close(); err == nil {
		t.Error("what was not shipped was dropped without a word")
	}
	t.Setenv("TONBO_API_KEY", next.text("secret"))
	if db, err = open("run-42"); err != nil {
		t.Fatal(err)
	}
	step(db)
	// Deleted: the key dies with its database.
	w.want(204, "DELETE", "/v1/databases/run-42", orchestrator, "")
	w.want(201, "POST", "/v1/databases", orchestrator, `{"name":"run-42"}`)
	if _, err := open("run-42"); !errors.Is(err, tonbo.ErrUnauthorized) {
		t.Error("the dead database's key opens the next one:", err)
	}
	db.Close() // it has ended
}
