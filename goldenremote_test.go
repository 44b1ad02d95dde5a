package tonbo_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/server"
)

var makeRemote = flag.String("golden.remote", "", "TestGoldenRemotesStayUsable: write testdata/remotes/<this>.zip, a remote as this code makes it. One that exists is never changed")

// truth is what was known of a golden remote by who made it, from the owners' local files.
type truth struct {
	Made      string
	Databases map[string]known
	Gone      []string // names that have no database
	Instances map[string]string
	KeySecret string // of a server's key that is good
	Revoked   string // of one that is not
	Creates   int64  // by Usage of the account
}

// known is one database.
type known struct {
	ID       string
	Frozen   bool
	Metadata map[string]string
	Parent   string
	Labels   map[string]string // digest of the state at each
	Head     string            // digest
	Commits  int64
}

// contentDigest is of every table's rows.
func contentDigest(t testing.TB, db interface {
	Query(string, ...any) (*sql.Rows, error)
}) string {
	t.Helper()
	h := sha256.New()
	for _, table := range strings.Fields(rows(t, db, "SELECT name FROM sqlite_schema WHERE type='table' AND rootpage>0 ORDER BY name")) {
		fmt.Fprintln(h, table)
		query := "SELECT * FROM " + table + " ORDER BY 1"
		if table == "wide" { // lengths are told without reading what is that long
			query = "SELECT count(*), sum(length(v)) FROM wide"
		}
		r, err := db.Query(query)
		if err != nil {
			t.Fatal(err)
		}
		names, err := r.Columns()
		if err != nil {
			t.Fatal(err)
		}
		vals, to := make([]any, len(names)), make([]any, len(names))
		for i := range vals {
			to[i] = &vals[i]
		}
		for r.Next() {
			if err := r.Scan(to...); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(h, "%#v\n", vals)
		}
		if err := errors.Join(r.Err(), r.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:12])
}

// TestGoldenRemotesStayUsable: accounts that older builds made are read, at each labelled point, verified, listed, counted, written, forked, rewound, collected and swept by today's code, and say what they said.
// testdata/remotes holds them; go test -run TestGoldenRemotes -golden.remote=<name> . adds one.
func TestGoldenRemotesStayUsable(t *testing.T) {
	dir := filepath.Join("testdata", "remotes")
	if *makeRemote != "" {
		writeRemote(t, filepath.Join(dir, *makeRemote+".zip"))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.zip"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden remotes (%v)", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			a, want := readRemote(t, f)
			checkRemote(t, a, want)
			if !raceEnabled { // nothing of it is about races
				useRemote(t, a, want)
			}
		})
	}
}

func writeRemote(t *testing.T, path string) {
	a := newAccount(t)
	want := makeGolden(t, a)
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	put := func(name string, body []byte) {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write(body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	said, err := json.MarshalIndent(want, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	put("truth.json", said)
	for _, key := range slices.Sorted(maps.Keys(objects(t, a.store))) {
		o, err := a.store.Get(t.Context(), key, remote.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		put("objects/"+key, o.Body)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// readRemote fills a store with a golden remote.
func readRemote(t *testing.T, path string) (*account, truth) {
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	a, want := &account{t: t, store: mem.New("golden")}, truth{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		if key, ok := strings.CutPrefix(f.Name, "objects/"); ok {
			_, err = a.store.Create(t.Context(), key, b)
		} else {
			err = json.Unmarshal(b, &want)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return a, want
}

// makeGolden makes one of everything that this version writes.
func makeGolden(t *testing.T, a *account) truth {
	ctx := t.Context()
	c := client(t, a)
	want := truth{Made: time.Now().UTC().Format(time.DateOnly), Databases: map[string]known{}, Instances: map[string]string{}}
	label := func(db *tonbo.DB, k *known, name string) {
		t.Helper()
		if _, err := db.Checkpoint(ctx, name); err != nil {
			t.Fatal(err)
		}
		k.Labels[name] = contentDigest(t, db)
	}
	note := func(name string, k known) {
		t.Helper()
		d, err := c.Get(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		u, err := c.Usage(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		k.ID, k.Frozen, k.Metadata, k.Parent, k.Commits = d.ID, d.Frozen, d.Metadata, d.ParentName, u.Commits
		want.Databases[name] = k
	}

	// Steps as deltas and whole pages, bases, several owners, a rewind.
	if _, err := c.Create(ctx, "main", tonbo.CreateOptions{Metadata: map[string]string{"task": "42"}, IdempotencyKey: "made-once", ExpiresAt: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)}); err != nil {
		t.Fatal(err)
	}
	k := known{Labels: map[string]string{}}
	db := open(t, "main", a.machine().Tuned(6, time.Hour))
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	exec(t, db, "CREATE VIRTUAL TABLE docs USING fts5(body)")
	synced(t, db)
	for i := range 40 {
		exec(t, db, "INSERT INTO t(v) VALUES(randomblob(700))")
		exec(t, db, "UPDATE t SET v=randomblob(30) WHERE id=?", i/2)
		exec(t, db, "INSERT INTO docs VALUES(?)", fmt.Sprint("step number ", i))
		label(db, &k, fmt.Sprint("step-", i))
		if i%10 == 9 {
			if err := db.Compact(ctx, i == 39); err != nil {
				t.Fatal(err)
			}
		}
		if i == 25 {
			closeDB(t, db)
			db = open(t, "main", a.machine().Tuned(6, time.Hour))
		}
	}
	closeDB(t, db)
	if _, err := c.Rewind(ctx, "main", tonbo.Label("step-30")); err != nil {
		t.Fatal(err)
	}
	db = open(t, "main", a.machine().Tuned(6, time.Hour))
	exec(t, db, "INSERT INTO t(v) VALUES('another way')")
	label(db, &k, "branched")
	exec(t, db, "INSERT INTO t(v) VALUES('the last commit, in the close entry')")
	k.Head = contentDigest(t, db)
	closeDB(t, db)
	main := k

	// Forks at the head and at a point, a fork of a fork whose middle is deleted, a frozen one.
	for name, o := range map[string]tonbo.ForkOptions{
		"fork":   {},
		"middle": {At: tonbo.Label("step-20")},
		"frozen": {At: tonbo.Label("step-5"), CreateOptions: tonbo.CreateOptions{Frozen: true}},
	} {
		if _, err := c.Fork(ctx, "main", name, o); err != nil {
			t.Fatal(err)
		}
	}
	note("frozen", known{Head: main.Labels["step-5"]})
	for _, name := range []string{"fork", "middle"} {
		k := known{Labels: map[string]string{}}
		db := open(t, name, a.machine().Unsettled())
		exec(t, db, "UPDATE t SET v='"+name+"' WHERE id%7=0")
		label(db, &k, "own")
		if name == "fork" { // its owner is never heard of again
			exec(t, db, "DELETE FROM t WHERE id<5")
			synced(t, db)
			k.Head = contentDigest(t, db)
			note(name, k)
			continue
		}
		k.Head = contentDigest(t, db)
		closeDB(t, db)
		if _, err := c.Fork(ctx, "middle", "grandchild", tonbo.ForkOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(ctx, "middle"); err != nil {
			t.Fatal(err)
		}
		want.Gone = append(want.Gone, "middle")
		note("grandchild", known{Head: k.Head})
	}
	note("main", main)

	// A base with a run and with a bottom of several chunks.
	if _, err := c.Create(ctx, "wide", tonbo.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	k = known{Labels: map[string]string{}}
	db = open(t, "wide", a.machine().Tuned(6, time.Hour))
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
	exec(t, db, "CREATE TABLE wide(v)")
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<135) INSERT INTO wide SELECT zeroblob(500000) FROM s") // in segments of its own
	for i := range 3 {
		exec(t, db, "INSERT INTO t(v) VALUES(?)", i)
		label(db, &k, fmt.Sprint("step-", i))
		if err := db.Compact(ctx, false); err != nil {
			t.Fatal(err)
		}
	}
	if b := db.Base(); b == nil || len(b.Levels) < 2 || len(b.Levels[0]) == 0 || len(b.Levels[len(b.Levels)-1]) < 2 {
		t.Fatalf("the base has not the levels meant: %+v", b)
	}
	k.Head = contentDigest(t, db)
	closeDB(t, db)
	note("wide", k)

	// An upper object that a later base names, some of whose pages have changed since, and a fork's base that names it.
	if _, err := c.Create(ctx, "deep", tonbo.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"deep", "branch"} {
		k = known{Labels: map[string]string{}}
		if name == "branch" {
			if _, err := c.Fork(ctx, "deep", name, tonbo.ForkOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		db = open(t, name, a.machine().Tuned(6, time.Hour).UpperObjects().Packing(0))
		if name == "deep" {
			exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v); CREATE INDEX i ON t(id, length(v)); CREATE TABLE few(v)")
			exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<900) INSERT INTO t(v) SELECT zeroblob(2000) FROM s")
			compacted(t, db)
		}
		hydrated(t, db)
		for i := range 2 {
			exec(t, db, "INSERT INTO few VALUES(?)", i)
			label(db, &k, fmt.Sprint("step-", i))
			compacted(t, db)
		}
		if u := db.Base().UpperObject; u == nil || u.Stale.Count() == 0 || !strings.HasPrefix(u.Key, "db/deep/") {
			t.Fatalf("%s has not the upper object meant: %+v", name, u)
		}
		exec(t, db, "UPDATE t SET v=7 WHERE id=700")
		k.Head = contentDigest(t, db)
		closeDB(t, db)
		note(name, k)
	}

	// Two incarnations of one name, and another page size.
	for i := range 2 {
		if _, err := c.Create(ctx, "again", tonbo.CreateOptions{PageSize: 512}); err != nil {
			t.Fatal(err)
		}
		k := known{Labels: map[string]string{}}
		db := open(t, "again", a.machine())
		exec(t, db, "CREATE TABLE t(v)")
		exec(t, db, "INSERT INTO t VALUES(?)", i)
		label(db, &k, "life")
		k.Head = contentDigest(t, db)
		closeDB(t, db)
		if i == 0 {
			if err := c.Delete(ctx, "again"); err != nil {
				t.Fatal(err)
			}
		} else {
			note("again", k)
		}
	}

	// Instance keys: one bound, one replaced, one released; and a server's keys.
	in := ensure(t, c, "customer:1", tonbo.EnsureOptions{Version: "1", Migrate: func(ctx context.Context, tx *sql.Tx, from string) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE orders(id INTEGER PRIMARY KEY, v)")
		return err
	}})
	exec(t, in.DB, "INSERT INTO orders(v) VALUES('of customer 1')")
	synced(t, in.DB)
	head := contentDigest(t, in.DB)
	closeDB(t, in.DB)
	note(in.Name, known{Head: head})
	want.Instances["customer:1"] = in.DatabaseID
	closeDB(t, ensure(t, c, "customer:2", tonbo.EnsureOptions{}).DB)
	in, err := c.Instances().Replace(ctx, "customer:2", tonbo.ReplaceOptions{Template: "frozen"})
	if err != nil {
		t.Fatal(err)
	}
	want.Instances["customer:2"] = in.DatabaseID
	closeDB(t, ensure(t, c, "customer:3", tonbo.EnsureOptions{}).DB)
	if err := c.Instances().Release(ctx, "customer:3"); err != nil {
		t.Fatal(err)
	}
	s := serve(t, a.store)
	want.KeySecret, want.Revoked = s.key(t, `{"name":"good","databases":["main"]}`), s.key(t, `{"name":"revoked"}`)
	full, err := tonbo.NewClient(tonbo.Options{URL: s.url, APIKey: s.owner, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for key, err := range full.Keys().List(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if key.Name == "revoked" {
			if err := full.Keys().Revoke(ctx, key.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	u, err := c.Usage(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	want.Creates = u.Creates
	return want
}

// checkRemote reads everything, and changes nothing.
func checkRemote(t *testing.T, a *account, want truth) {
	ctx := t.Context()
	c := client(t, a)
	listed := map[string]*tonbo.Database{}
	for d, err := range c.List(ctx, tonbo.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		listed[d.Name] = d
	}
	for name, k := range want.Databases {
		d, err := c.Get(ctx, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d.ID != k.ID || d.Frozen != k.Frozen || d.ParentName != k.Parent || !maps.Equal(d.Metadata, k.Metadata) || listed[name] == nil || listed[name].ID != k.ID {
			t.Errorf("%s is %+v, listed %+v, want %+v", name, d, listed[name], k)
		}
		if r, err := c.Verify(ctx, name); err != nil || !r.OK() {
			t.Errorf("Verify %s: %+v %v", name, r, err)
		}
		if u, err := c.Usage(ctx, name); err != nil || u.Commits != k.Commits {
			t.Errorf("usage of %s: %+v %v, want %d commits", name, u, err, k.Commits)
		}
		head := readOnly(t, a, name, nil)
		if name != "wide" {
			integrity(t, head)
		}
		if got := contentDigest(t, head); got != k.Head {
			t.Errorf("%s is %s, want %s", name, got, k.Head)
		}
		head.Close()
		if name == "fork" && *makeRemote == "" { // its own label, and those of its source are not its own
			if _, err := tonbo.OpenReadOnly(ctx, name, tonbo.Options{Remote: a.store, Dir: t.TempDir(), At: tonbo.Label("step-3")}); !errors.Is(err, tonbo.ErrPointGone) {
				t.Errorf("%s@step-3: %v", name, err)
			}
		}
		labels := slices.Sorted(maps.Keys(k.Labels))
		for i, l := range labels {
			if len(labels) > 8 && i%6 > 0 && !strings.HasPrefix(l, "br") { // some of many
				continue
			}
			ro := readOnly(t, a, name, tonbo.Label(l))
			if got := contentDigest(t, ro); got != k.Labels[l] {
				t.Errorf("%s@%s is %s, want %s", name, l, got, k.Labels[l])
			}
			ro.Close()
		}
		found := 0
		for e, err := range c.History(ctx, name) {
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := k.Labels[e.Label]; ok {
				found++
			}
		}
		if found != len(k.Labels) {
			t.Errorf("history of %s has %d labels, want %d", name, found, len(k.Labels))
		}
	}
	for _, name := range want.Gone {
		if _, err := c.Get(ctx, name); !errors.Is(err, tonbo.ErrNotFound) || listed[name] != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for key, id := range want.Instances {
		if in, err := c.Instances().Get(ctx, key); err != nil || in.DatabaseID != id {
			t.Errorf("instance %s: %+v %v, want %s", key, in, err, id)
		}
	}
	if _, err := c.Instances().Get(ctx, "customer:3"); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("an instance key that was released: %v", err)
	}
	if u, err := c.Usage(ctx, ""); err != nil || u.Creates != want.Creates {
		t.Errorf("usage: %+v %v, want %d creates", u, err, want.Creates)
	}
	s, err := server.New(server.Options{Options: tonbo.Options{Remote: a.store, Dir: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for secret, status := range map[string]int{want.KeySecret: http.StatusOK, want.Revoked: http.StatusUnauthorized} {
		r := httptest.NewRequestWithContext(ctx, "GET", "/v1/databases/main", nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != status {
			t.Errorf("a key is answered %d, want %d: %s", w.Code, status, w.Body)
		}
	}
}

// useRemote goes on where the older build left off.
func useRemote(t *testing.T, a *account, want truth) {
	ctx := t.Context()
	c := client(t, a)
	if d, err := c.Create(ctx, "main", tonbo.CreateOptions{Metadata: map[string]string{"task": "42"}, IdempotencyKey: "made-once", ExpiresAt: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)}); err != nil || !d.Replayed || d.ID != want.Databases["main"].ID {
		t.Errorf("the same call again: %+v %v", d, err)
	}
	for name, k := range want.Databases {
		if k.Frozen {
			if _, err := tonbo.Open(ctx, name, a.machine()); !errors.Is(err, tonbo.ErrFrozen) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		db := open(t, name, a.machine().Tuned(4, time.Hour))
		if got := contentDigest(t, db); got != k.Head {
			t.Errorf("%s, taken over, is %s, want %s", name, got, k.Head)
		}
		exec(t, db, "CREATE TABLE today(v)")
		for i := range 6 {
			exec(t, db, "INSERT INTO today VALUES(?)", i)
			synced(t, db)
		}
		if err := db.Compact(ctx, false); err != nil {
			t.Fatal(err)
		}
		after := contentDigest(t, db)
		closeDB(t, db)
		ro := readOnly(t, a, name, nil)
		if got := contentDigest(t, ro); got != after {
			t.Errorf("%s, written today, is %s elsewhere, want %s", name, got, after)
		}
		ro.Close()
		for l, state := range k.Labels {
			if _, err := c.Fork(ctx, name, "today-of-"+name, tonbo.ForkOptions{At: tonbo.Label(l)}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Rewind(ctx, name, tonbo.Label(l)); err != nil {
				t.Fatal(err)
			}
			for _, n := range []string{name, "today-of-" + name} {
				ro := readOnly(t, a, n, nil)
				if got := contentDigest(t, ro); got != state {
					t.Errorf("%s as of %s is %s, want %s", n, l, got, state)
				}
				ro.Close()
			}
			break
		}
	}
	for key, id := range want.Instances {
		in := ensure(t, c, key, tonbo.EnsureOptions{})
		if in.DatabaseID != id {
			t.Errorf("Ensure %s: %+v, want %s", key, in, id)
		}
		closeDB(t, in.DB)
	}
	if _, err := c.Sweep(ctx, tonbo.Janitor{}); err != nil {
		t.Fatal(err)
	}
	for name, k := range want.Databases {
		if _, err := c.Collect(ctx, name, tonbo.CollectOptions{}.Later(100*24*time.Hour)); err != nil {
			t.Errorf("Collect %s: %v", name, err)
		}
		if r, err := c.Verify(ctx, name); err != nil || !r.OK() {
			t.Errorf("Verify %s after collection: %+v %v", name, r, err)
		}
		for l, state := range k.Labels {
			ro := readOnly(t, a, name, tonbo.Label(l))
			if got := contentDigest(t, ro); got != state {
				t.Errorf("%s@%s after collection is %s, want %s", name, l, got, state)
			}
			ro.Close()
			break
		}
	}
}
