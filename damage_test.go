package tonbo_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// everyNth keeps the first of each n: the race detector slows SQLite down tenfold.
func everyNth[T any](s []T, n int) (r []T) {
	for i := 0; i < len(s); i += n {
		r = append(r, s[i])
	}
	return r
}

// bodies reads all objects of a store.
func bodies(t testing.TB, s remote.Store) map[string][]byte {
	t.Helper()
	m := map[string][]byte{}
	for k := range objects(t, s) {
		o, err := s.Get(context.Background(), k, remote.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m[k] = o.Body
	}
	return m
}

// storeOf makes a store with these objects.
func storeOf(t testing.TB, m map[string][]byte) *mem.Store {
	t.Helper()
	s := mem.New("test")
	for k, b := range m {
		if _, err := s.Create(context.Background(), k, b); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// crashed is a machine that stopped: its directory, and the remote as it was.
type crashed struct {
	dir    string
	remote map[string][]byte
}

// crash makes a database with acknowledged rows 0 to 9 and, with unshipped, 10 to 12 that were never shipped; some of them are in the database file already.
func crash(t testing.TB, unshipped bool) crashed {
	t.Helper()
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(n INTEGER PRIMARY KEY, v BLOB)")
	for i := range 10 {
		exec(t, db, "INSERT INTO t VALUES(?, randomblob(3000))", i)
	}
	exec(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
	exec(t, db, "UPDATE t SET v=randomblob(2500) WHERE n=3")
	synced(t, db)
	if unshipped {
		exec(t, db, "INSERT INTO t VALUES(10, randomblob(3000))")
		exec(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
		exec(t, db, "INSERT INTO t VALUES(11, randomblob(3000))")
		exec(t, db, "INSERT INTO t VALUES(12, randomblob(3000))")
	}
	c := crashed{t.TempDir(), bodies(t, a.store)}
	copyDir(t, o.Dir, c.dir)
	closeDB(t, db)
	return c
}

// TestLogThatHasLostWhatWasShippedIsDamaged: each page is one that was shipped, though an older one. The state says how far the write-ahead log went.
func TestLogThatHasLostWhatWasShippedIsDamaged(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(n INTEGER PRIMARY KEY, v)")
	exec(t, db, "INSERT INTO t VALUES(1, 'first')")
	synced(t, db)
	exec(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
	exec(t, db, "UPDATE t SET v='second'")
	synced(t, db)
	path := filepath.Join(o.Dir, "run", "db-wal")
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, "UPDATE t SET v='third'")
	synced(t, db)
	dir := t.TempDir()
	copyDir(t, o.Dir, dir)
	closeDB(t, db)
	if err := os.Truncate(filepath.Join(dir, "run", "db-wal"), fi.Size()); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	o = a.machine()
	o.Dir, o.Logger = dir, slog.New(slog.NewTextHandler(&log, nil))
	db = open(t, "run", o)
	if got := rows(t, db, "SELECT v FROM t"); got != "third" {
		t.Errorf("rows %q", got)
	}
	closeDB(t, db)
	if want := fmt.Sprintf("the WAL is valid up to byte %d and was", fi.Size()); !strings.Contains(log.String(), want) {
		t.Errorf("want %q in the log:\n%s", want, log.String())
	}
}

func TestDamagedLocalCopyIsRebuilt(t *testing.T) {
	const acked, all = "0 1 2 3 4 5 6 7 8 9", "0 1 2 3 4 5 6 7 8 9 10 11 12"
	type change struct {
		name string
		fn   func([]byte) []byte
	}
	var changes []change
	for i := range 16 {
		changes = append(changes, change{fmt.Sprintf("byte at %d/16 flipped", i), func(b []byte) []byte {
			if len(b) > 0 {
				b[len(b)*i/16+len(b)/40] ^= 0x41
			}
			return b
		}})
	}
	for _, i := range []int{0, 1, 5, 11, 15} {
		changes = append(changes, change{fmt.Sprintf("cut at %d/16", i), func(b []byte) []byte { return b[:len(b)*i/16+i] }})
	}
	changes = append(changes,
		change{"removed", func([]byte) []byte { return nil }},
		change{"zeroed", func(b []byte) []byte { return make([]byte, len(b)) }},
		change{"longer", func(b []byte) []byte { return append(b, bytes.Repeat([]byte{7}, 5000)...) }},
		change{"not touched", func(b []byte) []byte { return b }})
	if raceEnabled {
		changes = everyNth(changes, 4)
	}
	for _, unshipped := range []bool{false, true} {
		c := crash(t, unshipped)
		for _, file := range []string{"db", "db-wal", "state"} {
			gone := 0
			for _, ch := range changes {
				name := fmt.Sprintf("%s %s, unshipped %v", file, ch.name, unshipped)
				dir := t.TempDir()
				copyDir(t, c.dir, dir)
				path := filepath.Join(dir, "run", file)
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if b = ch.fn(b); b == nil {
					os.Remove(path)
				} else if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
				var log events
				a := &account{t: t, store: storeOf(t, c.remote)}
				o := a.machine()
				o.Dir, o.Logger = dir, slog.New(&log)
				db, err := tonbo.Open(t.Context(), "run", o)
				if file == "state" && errors.Is(err, tonbo.ErrForeignFile) { // whose the file is, is not known any more
					contains(t, err, "run", dir, "move it away")
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				got, lost := rows(t, db, "SELECT n FROM t"), db.Status().Lost
				switch {
				case got != acked && !strings.HasPrefix(all, got) || len(got) < len(acked):
					t.Errorf("%s: rows %q", name, got)
				case got == acked && unshipped && lost == "":
					gone++
					if !log.has("rebuilt") {
						t.Errorf("%s: unshipped commits are gone without a word", name)
					}
				case db.Status().ColdStart && !log.has("rebuilt"):
					t.Errorf("%s: rebuilt without an event", name)
				case ch.name == "not touched" && (db.Status().ColdStart || unshipped && got != all):
					t.Errorf("%s: cold %v, rows %q", name, db.Status().ColdStart, got)
				}
				integrity(t, db)
				exec(t, db, "INSERT INTO t VALUES(99, NULL)")
				synced(t, db)
				want := rows(t, db, "SELECT n || hex(v) FROM t")
				closeDB(t, db)
				db = open(t, "run", a.machine())
				if rows(t, db, "SELECT n || hex(v) FROM t") != want {
					t.Errorf("%s: the remote is not what the owner has", name)
				}
				integrity(t, db)
				closeDB(t, db)
			}
			if gone > 2 || gone > 0 && file != "db" { // without a database file there is nothing to set aside
				t.Errorf("%s: of %d changes, %d left nothing of the unshipped commits", file, len(changes), gone)
			}
		}
	}
}

// history makes a remote with a database of several entries: inside them, in segments, and whole ones.
func history(t testing.TB, bases bool) (objects map[string][]byte, rowsWant string) {
	t.Helper()
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine().Unsettled())
	compact := func() {
		if !bases {
			return
		}
		if err := db.Compact(context.Background(), false); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, db, "CREATE TABLE t(n INTEGER PRIMARY KEY, v BLOB)")
	synced(t, db)
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<900) INSERT INTO t SELECT n, hex(zeroblob(2500)) || hex(randomblob(8)) FROM s")
	synced(t, db)
	compact()
	exec(t, db, "UPDATE t SET v='x' WHERE n%200=0")
	synced(t, db)
	if compact(); bases { // a run above the bottom, and an entry above that
		exec(t, db, "UPDATE t SET v='y' WHERE n=7")
		synced(t, db)
	}
	closeDB(t, db)
	return bodies(t, a.store), rows(t, openOf(t, bodies(t, a.store)), "SELECT sum(length(v)) FROM t")
}

func openOf(t testing.TB, m map[string][]byte) *tonbo.DB {
	a := &account{t: t, store: storeOf(t, m)}
	return open(t, "run", a.machine())
}

func with(m map[string][]byte, key string, b []byte) map[string][]byte {
	r := map[string][]byte{}
	for k, v := range m {
		r[k] = v
	}
	if r[key] = b; b == nil {
		delete(r, key)
	}
	return r
}

func TestDamagedObjectsAreNamedAndNothingHalfIsTrusted(t *testing.T) {
	for _, bases := range []bool{false, true} {
		m, want := history(t, bases)
		n := map[string]int{}
		for key, body := range m {
			if !strings.HasPrefix(key, "db/") {
				continue
			}
			kind := strings.Split(key, "/")[2]
			n[kind]++
			if bases && kind == "log" {
				continue // as without bases
			}
			t.Run(key, func(t *testing.T) {
				t.Parallel()
				damageObject(t, m, key, body, want)
			})
		}
		if n["seg"] == 0 || bases && n["base"] != 2 {
			t.Errorf("%v objects were made", n)
		}
	}
}

// damageObject opens the database of m with one object damaged in many ways, and again when it is repaired.
func damageObject(t *testing.T, m map[string][]byte, key string, body []byte, want string) {
	damaged := map[string][]byte{"missing": nil, "longer": append(bytes.Clone(body), 0)}
	for i := range 16 {
		if raceEnabled && i%4 != 1 {
			continue
		}
		damaged[fmt.Sprintf("cut at %d/16", i)] = body[:len(body)*i/16]
		b := bytes.Clone(body)
		b[(len(b)-1)*i/15] ^= 0x10
		damaged[fmt.Sprintf("byte at %d/15 flipped", i)] = b
	}
	for how, b := range damaged {
		store := storeOf(t, with(m, key, b))
		a := &account{t: t, store: store}
		a.lazily(how, key, want)
		o := a.fullMachine()
		db, err := tonbo.Open(t.Context(), "run", o)
		if err == nil { // not needed for the state: but then it must be that state
			if got := rows(t, db, "SELECT sum(length(v)) FROM t"); got != want {
				t.Errorf("%s: rows of %s bytes, want %s", how, got, want)
			}
			closeDB(t, db)
			continue
		}
		if !errors.Is(err, tonbo.ErrCorrupt) {
			t.Errorf("%s: %v", how, err)
		}
		contains(t, err, "run", "mem://test", key)
		// It is repaired, from a copy: what was restored halfway is not taken for a local copy.
		store.Delete(t.Context(), key)
		if _, err := store.Create(t.Context(), key, body); err != nil {
			t.Fatal(err)
		}
		db = open(t, "run", o)
		if got := rows(t, db, "SELECT sum(length(v)) FROM t"); got != want || !db.Status().ColdStart {
			t.Errorf("%s, then repaired: rows of %s bytes, want %s; cold %v", how, got, want, db.Status().ColdStart)
		}
		closeDB(t, db)
	}
}

// lazily reads the whole database on a machine that fetches pages as they are read: it is right, or there is an error that names the object.
func (a *account) lazily(how, key, want string) {
	a.t.Helper()
	db, err := tonbo.Open(a.t.Context(), "run", a.lazyMachine())
	if err != nil {
		if !errors.Is(err, tonbo.ErrCorrupt) && !errors.Is(err, tonbo.ErrUnsupported) {
			a.t.Errorf("%s %s, lazily: %v", how, key, err)
		}
		return
	}
	defer db.Close()
	var got string
	err = db.QueryRow("SELECT sum(length(v)) FROM t").Scan(&got)
	if err != nil && (!errors.Is(err, tonbo.ErrCorrupt) || !strings.Contains(err.Error(), key)) || err == nil && got != want {
		a.t.Errorf("%s %s, lazily: rows of %q bytes, want %s: %v", how, key, got, want, err)
	}
}

func TestObjectsInEachOthersPlacesAreRefused(t *testing.T) {
	m, want := history(t, false)
	var keys []string
	for k := range m {
		if strings.HasPrefix(k, "db/") {
			keys = append(keys, k)
		}
	}
	for _, a := range keys {
		for _, b := range keys {
			if a == b || raceEnabled && !strings.Contains(a, "/seg/") {
				continue
			}
			acc := &account{t: t, store: storeOf(t, with(m, a, m[b]))}
			acc.lazily(b+" in the place of", a, want)
			db, err := tonbo.Open(t.Context(), "run", acc.fullMachine())
			if err == nil {
				if got := rows(t, db, "SELECT sum(length(v)) FROM t"); got != want {
					t.Errorf("%s in the place of %s: rows of %s bytes, want %s", b, a, got, want)
				}
				closeDB(t, db)
			} else {
				contains(t, err, "run")
			}
		}
	}
}

func TestUnknownFormatVersionFailsClosed(t *testing.T) {
	m, _ := history(t, false)
	needed := 0
	for key, body := range m {
		if !strings.HasPrefix(key, "db/") {
			continue
		}
		b := bytes.Clone(body)
		b[8]++ // docs/format.md: format version, header size, header checksum
		h := binary.LittleEndian.Uint32(b[12:])
		binary.LittleEndian.PutUint64(b[h-8:], xxhash.Sum64(b[:h-8]))
		a := &account{t: t, store: storeOf(t, with(m, key, b))}
		db, err := tonbo.Open(t.Context(), "run", a.machine())
		if err == nil { // not needed for the state
			closeDB(t, db)
			continue
		}
		needed++
		if !errors.Is(err, tonbo.ErrUnsupported) {
			t.Errorf("%s: %v", key, err)
		}
		contains(t, err, "run", key, "version 2", "update")
	}
	if needed < 4 {
		t.Errorf("%d objects were needed", needed)
	}
}
