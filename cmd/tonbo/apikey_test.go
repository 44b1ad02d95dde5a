package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/view"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/server"
)

// newServerShell is one of an empty account behind a server, with the owner's key.
func newServerShell(t *testing.T) *shell {
	t.Helper()
	s, err := server.New(server.Options{Options: tonbo.Options{Remote: mem.New("account"), Dir: t.TempDir()}, KeyCache: -1})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := s.MakeOwner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		srv.Close()
		s.Close()
	})
	t.Setenv("TONBO_API_KEY", owner)
	return &shell{t: t, url: srv.URL, dir: t.TempDir()}
}

func TestEveryCommandWorksThroughAServer(t *testing.T) {
	s := newServerShell(t)
	contains(t, s.ok("database", "create", "run-42", "--ttl", "1h", "--metadata", "task=42"), "state     active\n")
	contains(t, s.ok("database", "list"), "run-42")
	contains(t, s.ok("checkpoint", "run-42", "step-7"), "step-7")
	contains(t, s.ok("fork", "run-42@step-7", "run-43"), "run-43")
	contains(t, s.ok("log", "run-42"), "step-7")
	contains(t, s.ok("query", "run-42@step-7", "SELECT 1+1 AS two"), "2")
	s.ok("diff", "run-42@step-7", "run-43")
	contains(t, s.ok("instance", "ensure", "key-1"), "key-1")
	s.ok("verify", "run-43")
	s.ok("usage")
	file := filepath.Join(t.TempDir(), "out.db")
	s.ok("database", "export", "run-42", file)
	s.ok("database", "import", "run-44", file)
	s.ok("rewind", "run-42@step-7")
	s.ok("janitor")
	if got := s.ok("database", "count"); got != "4\n" {
		t.Errorf("counted %q", got)
	}
	s.ok("database", "delete", "run-43", "--yes")
}

func TestKeysAreMadeListedRotatedAndRevoked(t *testing.T) {
	s := newServerShell(t)
	s.ok("database", "create", "run-42")
	s.ok("database", "create", "other")
	var k view.Key
	s.document(&k, "api-key", "create", "run-sandboxes", "--database-prefix", "run-")
	if k.Secret == "" || !k.Narrowed || reach(k) != "run-*" || k.State != "active" {
		t.Errorf("made %+v", k)
	}
	contains(t, s.ok("api-key", "create", "run-42-sandbox", "--database", "run-42", "--read-only", "--ttl", "1d"), "reaches  run-42, read-only\n", "secret   tbo_")
	contains(t, s.ok("api-key", "list"), "run-sandboxes", "run-*", "run-42, read-only", "everything")

	owner := s.withKey(k.Secret)
	contains(t, s.ok("database", "get", "run-42"), "active")
	if got := s.lines("database", "list"); len(got) != 1 || got[0]["name"] != "run-42" {
		t.Errorf("a narrowed key lists %v", got)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"database", "delete", "run-42", "--yes"}, exitFailed, "forbidden"},
		{[]string{"database", "create", "run-43"}, exitFailed, "forbidden"},
		{[]string{"database", "get", "other"}, exitNotFound, "not_found"},
		{[]string{"api-key", "list"}, exitFailed, "forbidden"},
		{[]string{"api-key", "create", "wider"}, exitFailed, "forbidden"},
	} {
		r := s.run(append(c.args, "--json")...)
		if r.code != c.code {
			t.Errorf("%v: exit %d, %s", c.args, r.code, r.err)
		}
		contains(t, r.err, c.says)
	}
	s.withKey(owner)
	var rotated view.Key
	s.document(&rotated, "api-key", "rotate", k.ID)
	if rotated.Secret == "" || rotated.Secret == k.Secret {
		t.Errorf("rotated %+v", rotated)
	}
	s.withKey(k.Secret)
	if r := s.run("database", "get", "run-42", "--json"); r.code != exitFailed {
		t.Errorf("the old secret: exit %d %s", r.code, r.err)
	} else {
		contains(t, r.err, "unauthorized")
	}
	s.withKey(owner)
	contains(t, s.ok("api-key", "revoke", k.ID), "revoked")
	s.withKey(rotated.Secret)
	if r := s.run("database", "get", "run-42"); r.code != exitFailed {
		t.Errorf("a revoked key: exit %d %s", r.code, r.err)
	}
	s.withKey("")
	if r := s.run("database", "get", "run-42", "--json"); r.code != exitFailed {
		t.Errorf("no key: exit %d %s", r.code, r.err)
	} else {
		contains(t, r.err, "TONBO_API_KEY")
	}
	// On a bucket there are none.
	b := newDirShell(t)
	if r := b.run("api-key", "list", "--json"); r.code != exitFailed {
		t.Errorf("on a directory: exit %d %s", r.code, r.err)
	} else {
		contains(t, r.err, "unsupported")
	}
}

// withKey sets the key of what follows, and returns the one before.
func (s *shell) withKey(key string) (before string) {
	before = os.Getenv("TONBO_API_KEY")
	s.t.Setenv("TONBO_API_KEY", key)
	return before
}
