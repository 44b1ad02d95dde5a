package tonbo_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	osexec "os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/dir"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// forksEnv holds what a process that reads forks is to do, as JSON.
const forksEnv = "TONBO_TEST_FORKS"

// forksJob is what it is to do: open the databases at once, wait for a line on standard input, run the query on each, and say how many bytes came from the store, and
// what the query said.
type forksJob struct {
	URL, Dir, Query string
	Names           []string
	ReadOnly        bool
	Hydrate         bool // wait for all pages, and say how many bytes of them are here
}

func forksMain(raw string) int {
	var j forksJob
	err := json.Unmarshal([]byte(raw), &j)
	if err == nil {
		o := tonbo.Options{URL: j.URL, Dir: j.Dir, Hydration: tonbo.HydrateNone}
		if j.Hydrate {
			o.Progress = func(p tonbo.Progress) { fmt.Println(p.Done) }
		}
		fmt.Println("ready")
		if _, err = bufio.NewReader(os.Stdin).ReadString('\n'); err == nil {
			var down int64
			var got string
			if down, got, err = readForks(j, o); err == nil {
				fmt.Println(down, got)
				return 0
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// readForks opens databases at once and runs a query on each. It returns how many bytes that took, and what the query said.
func readForks(j forksJob, o tonbo.Options) (down int64, got string, err error) {
	ctx := context.Background()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, name := range j.Names {
		all.Go(func() {
			openDB := tonbo.Open
			if j.ReadOnly {
				openDB = tonbo.OpenReadOnly
			}
			var n int64
			var s string
			db, oerr := openDB(ctx, name, o)
			if oerr == nil && j.Hydrate {
				oerr = db.Hydrated(ctx)
			}
			if oerr == nil {
				oerr = db.QueryRowContext(ctx, j.Query).Scan(&s)
				n = db.Status().Requests.BytesDown
				oerr = errors.Join(oerr, db.Close())
			}
			mu.Lock()
			defer mu.Unlock()
			down += n
			if got == "" {
				got = s
			}
			if s != got {
				oerr = errors.Join(oerr, fmt.Errorf("database %s: the query says %s, elsewhere %s", name, s, got))
			}
			err = errors.Join(err, oerr)
		})
	}
	all.Wait()
	return down, got, err
}

// golden makes a database of so many MiB that do not compress, and forks of it. query reads read MiB of it.
func (a *account) golden(mib, read, forks int) (names []string, query, want string) {
	a.t.Helper()
	a.create("golden")
	db := open(a.t, "golden", a.machine())
	exec(a.t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, v BLOB)")
	const row = 3800 // bytes: one a page
	for done := 0; done < mib; done += 64 {
		exec(a.t, db, fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<%d) INSERT INTO t(k,v) SELECT n, randomblob(%d) FROM s", min(64, mib-done)*256, row))
		synced(a.t, db)
	}
	if err := db.Compact(context.Background(), false); err != nil {
		a.t.Fatal(err)
	}
	query = fmt.Sprintf("SELECT count(*)||':'||sum(unicode(hex(substr(v,7,1)))*id) FROM t WHERE id>%d AND id<=%d", mib*32, mib*32+read*256)
	want = rows(a.t, db, query)
	closeDB(a.t, db)
	c := client(a.t, a)
	for i := range forks {
		names = append(names, fmt.Sprint("work-", i))
		fork(a.t, c, "golden", names[i], nil)
	}
	return names, query, want
}

// TestForksOnOneMachineFetchEachBlockOnce: 20 forks that read the same part of their golden database download it once among them, in one process and in several.
func TestForksOnOneMachineFetchEachBlockOnce(t *testing.T) {
	mib, read := 40, 20
	if os.Getenv("TONBO_TEST_LARGE") != "" {
		mib, read = 1024, 50
	} else if testing.Short() {
		mib, read = 24, 16
	}
	url := t.TempDir()
	store, err := dir.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	a := &account{t: t, store: store}
	names, query, want := a.golden(mib, read, 20)
	single := a.lazyMachine()
	single.SharedCache = -1
	alone, _, err := readForks(forksJob{Names: names[:1], Query: query}, single)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("one fork alone: %d KiB", alone>>10)
	limit := alone + 1<<20 + 20*4<<10 // the read-ahead behind the part ends elsewhere each time, and each of the 20 forks reads its own log
	if os.Getenv("TONBO_TEST_LARGE") != "" {
		limit = int64(read) << 20 * 11 / 10
	}
	check := func(how, got string, down int64) {
		t.Helper()
		t.Logf("%s: %d KiB down for %d MiB that 20 forks of %d MiB read", how, down>>10, read, mib)
		if got != want || down > limit {
			t.Errorf("%s: got %s, want %s; %d bytes, want at most %d", how, got, want, down, limit)
		}
	}
	down, got, err := readForks(forksJob{Names: names, Query: query}, a.lazyMachine())
	if err != nil {
		t.Fatal(err)
	}
	check("one process", got, down)
	// Four processes, begun at the same time.
	m := a.machine()
	type running struct {
		cmd   *osexec.Cmd
		out   *bufio.Scanner
		start func()
	}
	var all []running
	for i := range 4 {
		j, err := json.Marshal(forksJob{URL: "file://" + filepath.ToSlash(url), Dir: m.Dir, Query: query, Names: names[i*5 : i*5+5]})
		if err != nil {
			t.Fatal(err)
		}
		cmd := osexec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), forksEnv+"="+string(j))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s := bufio.NewScanner(out)
		if !s.Scan() || s.Text() != "ready" {
			t.Fatalf("child: %q", s.Text())
		}
		all = append(all, running{cmd, s, func() { fmt.Fprintln(in) }})
	}
	for _, r := range all {
		r.start()
	}
	var sum int64
	for _, r := range all {
		r.out.Scan()
		var n int64
		if _, err := fmt.Sscan(r.out.Text(), &n, &got); err != nil || got != want {
			t.Errorf("child: %q, want %s", r.out.Text(), want)
		}
		sum += n
		if err := r.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	check("four processes", got, sum)
	// Read-only handles share, too, and find what the forks have fetched.
	down, got, err = readForks(forksJob{Names: []string{"golden", "golden", "work-1"}, Query: query, ReadOnly: true}, options(m, tonbo.HydrateNone))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("read-only handles afterwards: %d KiB", down>>10)
	if got != want || down > limit/10 {
		t.Errorf("read-only handles: got %s, want %s; %d bytes", got, want, down)
	}
}

func options(o tonbo.Options, h tonbo.Hydration) tonbo.Options {
	o.Hydration = h
	return o
}

// TestHydrationOfForksIsShared: whichever way the pages come.
func TestHydrationOfForksIsShared(t *testing.T) {
	for _, mib := range []int{12, 1} { // 1: small enough to be read before Open returns
		for _, h := range []tonbo.Hydration{tonbo.HydrateBackground, tonbo.HydrateFull} {
			a := newAccount(t)
			names, query, want := a.golden(mib, max(mib/2, 1), 3)
			o := options(a.machine(), h)
			var down []int64
			for _, name := range names {
				db := open(t, name, o)
				hydrated(t, db)
				down = append(down, db.Status().Requests.BytesDown)
				if got := rows(t, db, query); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				integrity(t, db)
				closeDB(t, db)
			}
			if down[0] < int64(mib)<<20*9/10 || down[1] > 100_000 || down[2] > 100_000 {
				t.Errorf("%d MiB, hydration %d: bytes down %v", mib, h, down)
			}
			if !bytes.Equal(image(t, o, names[0]), image(t, o, names[1])) {
				t.Error("the local files differ")
			}
		}
	}
}

func TestSharedCacheCanBeTurnedOff(t *testing.T) {
	a := newAccount(t)
	names, query, want := a.golden(4, 3, 2)
	o := a.lazyMachine()
	o.SharedCache = -1
	down, got, err := readForks(forksJob{Names: names, Query: query}, o)
	if err != nil || got != want {
		t.Fatal(got, err)
	}
	if down < 2*2<<20 {
		t.Errorf("%d bytes: something was shared", down)
	}
	if _, err := os.Stat(filepath.Join(o.Dir, ".blocks")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a cache: %v", err)
	}
}

// TestOwnersDoNotKeepTheirOwnPagesTwice: the local copy has them.
func TestOwnersDoNotKeepTheirOwnPagesTwice(t *testing.T) {
	a := newAccount(t)
	a.grown("run", 6000, true)
	o := a.machine()
	db := open(t, "run", o)
	hydrated(t, db)
	closeDB(t, db)
	if _, err := os.Stat(filepath.Join(o.Dir, ".blocks")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a cache: %v", err)
	}
}

// TestDamagedSharedCacheIsNoticed: whatever stands in its files, what is read is right, and nothing fails.
func TestDamagedSharedCacheIsNoticed(t *testing.T) {
	a := newAccount(t)
	names, query, want := a.golden(6, 5, 6)
	o := a.lazyMachine()
	rng := rand.New(rand.NewSource(1))
	for i, name := range names {
		down, got, err := readForks(forksJob{Names: []string{name}, Query: query}, o)
		if err != nil || got != want {
			t.Fatalf("%s: got %s %v, want %s", name, got, err, want)
		}
		t.Logf("%s: %d KiB", name, down>>10)
		err = filepath.WalkDir(filepath.Join(o.Dir, ".blocks"), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() == "lock" || rng.Intn(3) == 0 {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil || len(b) == 0 {
				return err
			}
			switch i % 4 {
			case 0:
				b[rng.Intn(len(b))] ^= 1 << rng.Intn(8)
			case 1:
				b = b[:rng.Intn(len(b))]
			case 2:
				clear(b)
			case 3:
				return os.Remove(path)
			}
			return os.WriteFile(path, b, 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSharedCacheKnowsRemotesAndLivesApart: the same name, the same slots, another database.
func TestSharedCacheKnowsRemotesAndLivesApart(t *testing.T) {
	local := t.TempDir()
	for i := range 3 {
		a := &account{t: t, store: mem.New("test")} // made anew under the same name, as a bucket that was emptied
		names, query, want := a.golden(2+i%2, 1, 2)
		o := a.lazyMachine()
		o.Dir = filepath.Join(local, "machine")
		for _, name := range names {
			os.RemoveAll(filepath.Join(o.Dir, name))
		}
		if _, got, err := readForks(forksJob{Names: names, Query: query}, o); err != nil || got != want {
			t.Errorf("round %d: got %s %v, want %s", i, got, err, want)
		}
	}
}
