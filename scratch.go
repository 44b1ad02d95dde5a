package tonbo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/remote"
)

// Metadata of databases that Scratch and Explore make: a janitor finds those of processes that died by ScratchKind.
const (
	MetadataKind   = "kind"   // ScratchKind
	MetadataTask   = "task"   // what the database is for
	MetadataGolden = "golden" // what it was forked from
	ScratchKind    = "agent-scratch-db"
)

const (
	scratchTTL     = time.Hour        // of a database whose process dies
	scratchCleanup = 30 * time.Second // for the deletion, whatever became of the caller's ctx
	scratchTries   = 5
)

// Scratch runs fn on a fork of golden that nobody else has, and deletes the fork when fn has returned, also when it panics or ctx ends. Nothing of it is kept, here or in the remote: fn may let a model do
// what it likes with it. When this process dies first, the fork expires after an hour, and its local copy goes with the first Scratch or Explore of another Client in that directory, or a [Client.Sweep]. task says what it is for, in the fork's metadata; up to 256 bytes.
//
// The error is fn's, with that of the deletion if there is one. Use [Diff] and [Promote] in fn to keep some of what was done.
func Scratch(ctx context.Context, c *Client, golden, task string, fn func(context.Context, *DB) error) (err error) {
	if err := notNil("c", c == nil, "fn", fn == nil); err != nil {
		return wrap(golden, "scratch", err)
	}
	s, err := c.scratch(ctx, golden, nil, scratchName(golden), CreateOptions{TTL: scratchTTL, Metadata: scratchMetadata(nil, golden, task)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove(ctx)) }()
	if err := s.open(ctx); err != nil {
		return err
	}
	return fn(ctx, s.db)
}

func scratchMetadata(m map[string]string, golden, task string) map[string]string {
	r := map[string]string{MetadataKind: ScratchKind, MetadataGolden: golden, MetadataTask: task}
	maps.Copy(r, m)
	return r
}

func scratchName(golden string) string {
	var tag [8]byte
	rand.Read(tag[:])
	suffix := fmt.Sprintf(".scratch-%x", tag)
	return golden[:min(len(golden), 200-len(suffix))] + suffix
}

// scratch is a fork that is thrown away.
type scratch struct {
	c  *Client
	d  *Database
	db *DB // nil: not open
}

func (c *Client) scratch(ctx context.Context, golden string, at At, name string, o CreateOptions) (*scratch, error) {
	c.leftOnce.Do(func() {
		if n, err := c.removeLeft(false); n > 0 || err != nil {
			c.o.Logger.Debug("local copies of scratch databases whose processes have died", "removed", n, "error", err)
		}
	})
	d, err := c.Fork(ctx, golden, name, ForkOptions{CreateOptions: o, At: at})
	if err != nil {
		if errors.Is(err, ErrUnsynced) { // it may exist: it expires
			c.o.Logger.Debug("a scratch database may have been left behind; it expires", "database", name, "error", err)
		}
		return nil, err
	}
	return &scratch{c: c, d: d}, nil
}

// open opens the fork. Close throws its local copy away, whoever calls it, until it is to be kept.
func (s *scratch) open(ctx context.Context) (err error) {
	o := s.c.o
	o.throwaway = true
	s.db, err = Open(ctx, s.d.Name, o)
	return err
}

// remove deletes the fork and its local copy.
func (s *scratch) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), scratchCleanup)
	defer cancel()
	var err error
	if s.db != nil {
		err = s.db.Close()
	} else if dir, derr := cache.Open(s.c.o.Dir, s.d.Name, cache.Options{Logger: s.c.o.Logger}); derr == nil { // an Open that failed may have begun one
		err = dir.Remove()
	}
	var b remote.Backoff
	derr := s.c.Delete(ctx, s.d.Name)
	for try := 1; derr != nil && !errors.Is(derr, ErrNotFound) && try < scratchTries && b.Wait(ctx, derr) == nil; try++ {
		derr = s.c.Delete(ctx, s.d.Name)
	}
	if derr != nil && !errors.Is(derr, ErrNotFound) {
		err = errors.Join(err, fmt.Errorf("scratch database %s is left; it expires at %s, and a janitor deletes it then: %w", s.d.Name, s.d.ExpiresAt.UTC().Format(time.RFC3339), derr))
	}
	return err
}

// throwAway makes Close ship nothing and remove the local copy, or not; and the same for whoever finds it when this process has died.
func (h *handle) throwAway(discard bool) error {
	h.mu.Lock()
	h.discard = discard
	h.mu.Unlock()
	return h.dir.SetThrowaway(discard)
}

// removeLeft removes the local copies of scratch databases whose processes have died.
func (c *Client) removeLeft(dry bool) (int, error) { return cache.RemoveThrowaways(c.o.Dir, dry) }

// Candidate is one of the ways that Explore tries.
type Candidate struct {
	Name string                           // for results and metadata; up to 256 bytes
	Run  func(context.Context, *DB) error // works on a fork of its own
}

// ExploreOptions of Explore.
type ExploreOptions struct {
	// Score says how good a candidate's database is after Run; the highest wins, of equals the first. Required.
	Score       func(context.Context, *DB) (float64, error)
	At          At                // the source's point; nil: its head, the same for all
	Concurrency int               // candidates at once; default 4
	TTL         time.Duration     // after which a fork expires if this process dies; default 1 h
	Metadata    map[string]string // of the forks, beside kind, task and golden
}

// ExploreResult tells what came of it.
type ExploreResult struct {
	Winner     *Database // kept, without expiry; nil: no candidate succeeded
	Index      int       // of the winner; -1
	Candidates []CandidateResult
}

// CandidateResult is one candidate's.
type CandidateResult struct {
	Name  string
	Score float64
	Err   error // of its fork, Run or Score; nil: it was in the running
}

// Explore runs each candidate on a fork of source of its own, all from the same point, scores their databases, keeps the best one, and deletes the others, also when one panics or ctx ends: then
// none is kept. The winner's database is synced and closed; it does not expire, and its metadata lose MetadataKind. Fork it under the name that it is to have, and delete it, or Promote what it changed. The error is nil when there is a winner; it names each candidate's failure when all have failed. What could not be deleted is in
// the error, too: it expires.
func Explore(ctx context.Context, c *Client, source string, candidates []Candidate, o ExploreOptions) (*ExploreResult, error) {
	switch {
	case c == nil:
		return nil, invalid("c", "it is nil")
	case len(candidates) == 0:
		return nil, invalid("candidates", "there are none")
	case o.Score == nil:
		return nil, invalid("Score", "ExploreOptions.Score is not set")
	case o.Concurrency < 0 || o.TTL < 0:
		return nil, invalid("Concurrency", "ExploreOptions.Concurrency and TTL are not negative: %d, %s", o.Concurrency, o.TTL)
	}
	for i, cand := range candidates {
		if cand.Run == nil {
			return nil, invalid("candidates", "Run of candidate %d, %q, is nil", i, cand.Name)
		}
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 4
	}
	if o.TTL <= 0 {
		o.TTL = scratchTTL
	}
	e := &exploration{c: c, o: o, source: source, candidates: candidates, best: -1, forks: make([]*scratch, len(candidates))}
	e.r = &ExploreResult{Index: -1, Candidates: make([]CandidateResult, len(candidates))}
	// (1) One point for all.
	if err := e.fix(ctx); err != nil {
		return nil, err
	}
	// (2) Whatever happens from here on, what has not won is deleted.
	kept := -1
	func() {
		defer func() { e.left = errors.Join(e.left, e.removeAllBut(ctx, kept)) }()
		e.run(ctx)
		if e.panicked != nil || ctx.Err() != nil || e.best < 0 {
			return
		}
		// (3) The winner.
		if err := e.keep(ctx); err != nil {
			e.r.Candidates[e.best].Err = err
			return
		}
		kept = e.best
	}()
	if e.panicked != nil {
		panic(e.panicked)
	}
	if err := ctx.Err(); err != nil {
		return e.r, errors.Join(fmt.Errorf("explore %s: %w", source, err), e.left)
	}
	if kept < 0 {
		var all []error
		for _, r := range e.r.Candidates {
			if r.Err != nil {
				all = append(all, fmt.Errorf("candidate %s: %w", r.Name, r.Err))
			}
		}
		return e.r, errors.Join(fmt.Errorf("explore %s: no candidate succeeded: %w", source, errors.Join(all...)), e.left)
	}
	e.r.Winner, e.r.Index = e.forks[kept].d, kept
	return e.r, e.left
}

// exploration is one Explore.
type exploration struct {
	c          *Client
	o          ExploreOptions
	source     string
	candidates []Candidate
	r          *ExploreResult

	mu       sync.Mutex // guards what follows, while candidates run
	forks    []*scratch
	best     int
	panicked any
	left     error // of deletions
}

// fix makes o.At one point.
func (e *exploration) fix(ctx context.Context) error {
	if e.o.At != nil {
		return nil
	}
	d, err := e.c.Get(ctx, e.source)
	if err != nil {
		return err
	}
	e.o.At = d.Head
	return nil
}

func (e *exploration) run(ctx context.Context) {
	g := new(errgroup.Group)
	g.SetLimit(e.o.Concurrency)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for n := range e.candidates {
		e.r.Candidates[n].Name = e.candidates[n].Name
		g.Go(func() error {
			returned := false
			defer func() {
				p := recover()
				if p == nil && !returned { // runtime.Goexit, as testing's FailNow does
					e.lose(ctx, e.note(n, 0, errors.New("its goroutine has ended")))
				}
				if p != nil {
					e.mu.Lock()
					defer e.mu.Unlock()
					e.panicked = p
					cancel() // the others may stop
				}
			}()
			score, err := e.try(ctx, n)
			returned = true
			e.lose(ctx, e.note(n, score, err))
			return nil
		})
	}
	g.Wait()
}

// note records a candidate's result, and returns the fork that cannot win any more.
func (e *exploration) note(n int, score float64, err error) (loser *scratch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.r.Candidates[n].Score, e.r.Candidates[n].Err = score, err
	lost := n
	if err == nil && (e.best < 0 || score > e.r.Candidates[e.best].Score || score == e.r.Candidates[e.best].Score && n < e.best) {
		lost, e.best = e.best, n
	}
	if lost >= 0 {
		loser, e.forks[lost] = e.forks[lost], nil
	}
	return loser
}

// lose deletes a fork that cannot win any more; nil: there is none.
func (e *exploration) lose(ctx context.Context, loser *scratch) {
	if loser == nil {
		return
	}
	err := loser.remove(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left = errors.Join(e.left, err)
}

// try runs one candidate. Its database stays open while it may win.
func (e *exploration) try(ctx context.Context, n int) (float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	cand := e.candidates[n]
	s, err := e.c.scratch(ctx, e.source, e.o.At, scratchName(e.source), CreateOptions{TTL: e.o.TTL, Metadata: scratchMetadata(e.o.Metadata, e.source, cand.Name)})
	if err != nil {
		return 0, err
	}
	e.mu.Lock()
	e.forks[n] = s
	e.mu.Unlock()
	if err := s.open(ctx); err != nil {
		return 0, err
	}
	if err := cand.Run(ctx, s.db); err != nil {
		return 0, err
	}
	score, err := e.o.Score(ctx, s.db)
	if err == nil && math.IsNaN(score) {
		err = errors.New("its score is not a number")
	}
	return score, err
}

// keep syncs and closes the winner, and takes its expiry away.
func (e *exploration) keep(ctx context.Context) error {
	s := e.forks[e.best]
	err := s.db.h.throwAway(false)
	if err == nil {
		err = s.db.Synced(ctx)
	}
	if err != nil {
		return errors.Join(err, s.db.h.throwAway(true))
	}
	never := time.Time{}
	d, err := e.c.Update(ctx, s.d.Name, UpdateOptions{ExpiresAt: &never, Metadata: map[string]*string{MetadataKind: nil}}) // no scratch database any more: a janitor that looks for those passes it over
	if err != nil {
		return err
	}
	if err := s.db.Close(); err != nil {
		return err
	}
	s.d, s.db = d, nil
	return nil
}

func (e *exploration) removeAllBut(ctx context.Context, kept int) error {
	var errs []error
	for n, s := range e.forks {
		if s != nil && n != kept {
			errs = append(errs, s.remove(ctx))
		}
	}
	return errors.Join(errs...)
}
