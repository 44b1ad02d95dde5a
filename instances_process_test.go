package tonbo_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/tonbo-go/tonbo"
)

// Several processes ask for the same keys at once, many times each: one database a key, one Created, one migration. TONBO_TEST_LARGE=1: 1,000 Ensures of 100 keys from 8 processes.
func TestProcessesThatEnsureTheSameKeysGetTheSameDatabases(t *testing.T) {
	processes, j := 4, job{Keys: 5, Callers: 2}
	if os.Getenv("TONBO_TEST_LARGE") != "" {
		processes, j = 8, job{Keys: 100, Callers: 2}
	}
	w := newWorld(t)
	var running []*process
	for range processes {
		j.Dir = w.dir()
		running = append(running, w.start(j, ""))
	}
	ids, created := map[int]map[string]bool{}, map[int]int{}
	for _, p := range running {
		events := p.wait()
		if len(said(events, "ensured")) != j.Keys*j.Callers || len(said(events, "done")) != 1 {
			t.Fatalf("%d Ensures have returned, want %d: %v", len(said(events, "ensured")), j.Keys*j.Callers, events[max(0, len(events)-3):])
		}
		for _, e := range said(events, "ensured") {
			if ids[e.Seq] == nil {
				ids[e.Seq] = map[string]bool{}
			}
			ids[e.Seq][e.Path] = true
			if e.Err == string(tonbo.Created) {
				created[e.Seq]++
			}
			if e.Gen != 1 {
				t.Errorf("key %d: generation %d", e.Seq, e.Gen)
			}
		}
	}
	for k := range j.Keys {
		if len(ids[k]) != 1 || created[k] != 1 {
			t.Errorf("key %d: databases %v, %d say Created", k, ids[k], created[k])
		}
	}
	c, err := tonbo.NewClient(w.options(w.dir()))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Count(t.Context(), tonbo.Filter{Prefix: "key-"}); err != nil || n != j.Keys {
		t.Errorf("%d databases, want %d (%v)", n, j.Keys, err)
	}
}

// A process is killed at each step of an Ensure: the next one finishes what it began, and there is one database, migrated once.
func TestEnsureIsFinishedByTheNextOne(t *testing.T) {
	s := scenario{name: "ensure", only: "ensure:", job: job{Keys: 1, Callers: 1}}
	names, _ := s.failpoints(t)
	if len(names) < 4 {
		t.Fatalf("only %v", names)
	}
	for _, at := range names {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s.play(w, w.dir(), at)
			j := s.job
			j.Dir = w.dir()
			got := said(w.start(j, "").wait(), "ensured")
			if len(got) != 1 || got[0].Gen != 1 {
				t.Fatalf("the next Ensure: %v", got)
			}
			c, err := tonbo.NewClient(w.options(w.dir()))
			if err != nil {
				t.Fatal(err)
			}
			in := ensure(t, c, "key-0", tonbo.EnsureOptions{})
			if in.DatabaseID != got[0].Path || in.Version != "v1" || count(t, in.DB.DB, "migrated") != 1 {
				t.Errorf("%+v, database %s", in, got[0].Path)
			}
			n, err := c.Count(t.Context(), tonbo.Filter{Prefix: "key-"})
			if err != nil || n != 1 {
				t.Error(fmt.Sprintf("%d databases", n), err)
			}
			closeDB(t, in.DB)
		})
	}
}

// A process is killed at each step of a Replace: the next Ensure finishes it, or finds the key as it was. Never has the key two databases that can be written.
func TestReplaceIsFinishedByTheNextEnsure(t *testing.T) {
	s := scenario{name: "replace", only: "replace:", job: job{Keys: 1, Callers: 1, Replace: true}}
	names, _ := s.failpoints(t)
	if len(names) < 2 {
		t.Fatalf("only %v", names)
	}
	for _, at := range names {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			_, events := s.play(w, w.dir(), at)
			old := said(events, "ensured")[0].Path
			c, err := tonbo.NewClient(w.options(w.dir()))
			if err != nil {
				t.Fatal(err)
			}
			in := ensure(t, c, "key-0", tonbo.EnsureOptions{})
			if in.Generation != 2 || in.DatabaseID == old {
				t.Errorf("%+v; the old database was %s", in, old)
			}
			closeDB(t, in.DB)
			writable := 0
			for d, err := range c.List(t.Context(), tonbo.Filter{Prefix: "key-"}) {
				if err != nil {
					t.Fatal(err)
				}
				if !d.Frozen {
					writable++
				}
			}
			if writable != 1 {
				t.Errorf("%d databases of the key can be written", writable)
			}
		})
	}
}
