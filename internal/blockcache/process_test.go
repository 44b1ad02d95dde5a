package blockcache_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/internal/blockcache"
)

const (
	objects  = 3
	perBlock = 60 // blocks of each
)

// childMain reads at random until it is killed ("random|<dir>|<seed>|<max>"), or all blocks once ("all|<dir>").
func childMain(job string) {
	f := strings.Split(job, "|")
	fail := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	r := &remote{}
	switch f[0] {
	case "all":
		c := blockcache.New(blockcache.Options{Dir: f[1], Max: 1 << 30, Wait: time.Minute})
		defer c.Close()
		fmt.Println("ready")
		bufio.NewReader(os.Stdin).ReadString('\n')
		for o := range objects {
			for n := 0; n < perBlock; n += 5 {
				fail(tryRead(c, r, o, n, 5))
			}
		}
		fmt.Println("fetched", r.bytes.Load())
	case "random":
		var seed, limit uint64
		fmt.Sscan(f[2], &seed)
		fmt.Sscan(f[3], &limit)
		rng := rand.New(rand.NewPCG(seed, 1))
		c := blockcache.New(blockcache.Options{Dir: f[1], Max: int64(limit)})
		fmt.Println("ready")
		for {
			first := rng.IntN(perBlock)
			fail(tryRead(c, r, rng.IntN(objects), first, 1+rng.IntN(min(8, perBlock-first))))
		}
	}
}

func child(t *testing.T, job string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+job)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func TestProcessesFetchEachBlockOnce(t *testing.T) {
	dir := t.TempDir()
	type running struct {
		cmd *exec.Cmd
		out *bufio.Scanner
	}
	var all []running
	var start []func()
	for range 4 {
		cmd, out := child(t, "all|"+dir)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !out.Scan() || out.Text() != "ready" {
			t.Fatalf("child: %q", out.Text())
		}
		all = append(all, running{cmd, out})
		start = append(start, func() { fmt.Fprintln(in); in.Close() })
	}
	for _, s := range start {
		s()
	}
	var sum, want int64
	for _, c := range all {
		c.out.Scan()
		var n int64
		if _, err := fmt.Sscanf(c.out.Text(), "fetched %d", &n); err != nil {
			t.Errorf("child: %q", c.out.Text())
		}
		sum += n
		if err := c.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	for o := range objects {
		for n := range perBlock {
			want += int64(len(content(o, n)))
		}
	}
	if sum != want {
		t.Errorf("4 processes fetched %d bytes, want %d: each block once", sum, want)
	}
}

// TestKilledProcessesAndDamageNeverShowAWrongBlock: processes read, write and evict at once, are killed at any time, and their files are changed under them; every block
// that anybody reads is right.
func TestKilledProcessesAndDamageNeverShowAWrongBlock(t *testing.T) {
	dir := t.TempDir()
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	const limit = 60_000 // bytes: about a fifth of everything, so that they evict all the time
	for round := range rounds {
		var kids []*exec.Cmd
		var outs []*bufio.Scanner
		for range 3 {
			cmd, out := child(t, fmt.Sprintf("random|%s|%d|%d", dir, rng.Uint64(), limit))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if !out.Scan() {
				t.Fatal("child said nothing")
			}
			kids, outs = append(kids, cmd), append(outs, out)
		}
		end := time.Now().Add(time.Duration(20+rng.IntN(100)) * time.Millisecond)
		for time.Now().Before(end) {
			if files, _ := filesIn(t, dir); len(files) > 0 {
				f := files[rng.IntN(len(files))]
				if b, err := os.ReadFile(f); err == nil && len(b) > 0 {
					if rng.IntN(2) == 0 {
						b[rng.IntN(len(b))] ^= 1
					} else {
						b = b[:rng.IntN(len(b))]
					}
					if g, err := os.OpenFile(f, os.O_WRONLY, 0); err == nil { // in place: readers have it open
						g.Truncate(int64(len(b)))
						g.WriteAt(b, 0)
						g.Close()
					}
				}
			}
		}
		for i, cmd := range kids {
			cmd.Process.Kill()
			for outs[i].Scan() {
				t.Errorf("round %d: %s", round, outs[i].Text())
			}
			cmd.Wait()
		}
	}
	// Whoever comes next finds nothing in its way.
	c := newCache(t, blockcache.Options{Dir: dir, Max: limit})
	for o := range objects {
		read(t, c, &remote{}, o, 0, perBlock)
	}
	c.Close() // waits for an eviction under way, beside which none begins
	if err := newCache(t, blockcache.Options{Dir: dir, Max: limit}).Evict(); err != nil {
		t.Fatal(err)
	}
	files, sum := filesIn(t, dir)
	for _, f := range files { // temporary files of the killed ones stay for ten minutes
		if fi, err := os.Stat(f); err == nil && strings.HasSuffix(f, ".tmp") {
			sum -= fi.Size()
		}
	}
	if sum > limit {
		t.Errorf("%d bytes, the bound is %d", sum, limit)
	}
}
