package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
)

// script is a shell in which tonbo is this command.
type script struct {
	t   *testing.T
	env []string
}

// newScript skips the test where the programs are not that people follow the documents with.
func newScript(t *testing.T, s *shell, url, key string) *script {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a shell as on Unix is needed")
	}
	for _, program := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "tonbo"), []byte("#!/bin/sh\n"+childEnv+"=1 exec '"+me+"' \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &script{t, []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TONBO_URL=" + url, "TONBO_API_KEY=" + key, "TONBO_DIR=" + s.dir}}
}

// run runs commands as they stand in a document, and returns what they write.
func (s *script) run(commands string) string {
	s.t.Helper()
	c := exec.CommandContext(s.t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	c.Env = s.env
	var errs strings.Builder
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		s.t.Fatalf("%v: %s\n%s%s", err, commands, out, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// TestOneDatabaseForEachRunWithCurlAndJQ follows docs/server.md as an orchestrator does from a shell, with a sandbox in between that has a URL and a key.
func TestOneDatabaseForEachRunWithCurlAndJQ(t *testing.T) {
	s := newDirShell(t)
	server := s.serve("--init", "--key-cache", "-1s")
	owner := newScript(t, s, server.URL, server.OwnerKey)
	secret := owner.run(`tonbo api-key create first --agent orchestrator --role member --json | jq -r .secret`)

	orchestrator := newScript(t, s, server.URL, secret)
	create := `curl -sS $TONBO_URL/v1/databases -H "Authorization: Bearer $TONBO_API_KEY" -H "Idempotency-Key: run-42-once" -H "Content-Type: application/json" -d '{"name":"run-42"}' | jq -r .data.id`
	id := orchestrator.run(create)
	if again := orchestrator.run(create); again != id || len(id) != 32 {
		t.Errorf("the retry answers %q, the first %q", again, id)
	}
	orchestrator.run(`until [ "$(curl -sS $TONBO_URL/v1/databases/run-42 -H "Authorization: Bearer $TONBO_API_KEY" | jq -r .data.state)" = active ]; do sleep 1; done`)
	sandboxKey := orchestrator.run(`tonbo api-key create run-sandboxes --database-prefix run- --json | jq -r .secret`)
	ownKey := orchestrator.run(`tonbo api-key create run-43-sandbox --database run-43 | sed -n 's/^secret *\(tbo_[^ ]*\).*/\1/p'`)

	for range 2 { // the second from nothing: a machine that was lost
		db, err := tonbo.Open(t.Context(), "run-42", tonbo.Options{URL: server.URL, APIKey: sandboxKey, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("CREATE TABLE IF NOT EXISTS steps(id INTEGER PRIMARY KEY, body TEXT); INSERT INTO steps(body) VALUES ('done')"); err != nil {
			t.Fatal(err)
		}
		if err := db.Synced(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := orchestrator.run(`tonbo query run-42 "select count(*) from steps" --json | jq -c .rows`); got != "[[2]]" {
		t.Errorf("steps: %s", got)
	}

	// The key that names a database before there is one: until then there is nothing to open, and then it opens.
	if _, err := tonbo.Open(t.Context(), "run-43", tonbo.Options{URL: server.URL, APIKey: ownKey, Dir: t.TempDir()}); err == nil {
		t.Error("a database that was not created yet opens")
	}
	orchestrator.run(`tonbo database create run-43 --ttl 7d`)
	db, err := tonbo.Open(t.Context(), "run-43", tonbo.Options{URL: server.URL, APIKey: ownKey, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	sandbox := newScript(t, s, server.URL, sandboxKey)
	if got := sandbox.run(`curl -sS -o /dev/null -w '%{http_code}' -X DELETE $TONBO_URL/v1/databases/run-42 -H "Authorization: Bearer $TONBO_API_KEY"; if tonbo database delete run-42 --yes 2>/dev/null; then echo deleted; fi`); got != "403" {
		t.Errorf("a sandbox deletes: %s", got)
	}
	if got := orchestrator.run(`curl -sS -o /dev/null -w '%{http_code}' -X DELETE $TONBO_URL/v1/databases/run-42 -H "Authorization: Bearer $TONBO_API_KEY"; echo; tonbo database delete run-43 --yes; tonbo database count`); got != "204\nrun-43 is deleted\n0" {
		t.Errorf("the runs are done: %s", got)
	}
	// The key of the one database has died with it, the key of the prefix lives.
	if got := orchestrator.run(`for key in ` + ownKey + ` ` + sandboxKey + `; do curl -sS -o /dev/null -w '%{http_code} ' $TONBO_URL/v1/databases -H "Authorization: Bearer $key"; done`); got != "401 200" {
		t.Errorf("the sandboxes' keys: %s", got)
	}
}
