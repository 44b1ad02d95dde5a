package tonbo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/gc"
	"github.com/tonbo-go/tonbo/remote"
)

// Janitor says what a Sweep looks at and what it may end. The zero value ends what has expired, finishes what was interrupted, and tidies up behind all databases of the account.
type Janitor struct {
	Prefix   string            // only databases whose names begin with this
	Metadata map[string]string // only databases with these pairs
	// OlderThan > 0 also deletes databases that never expire, were created longer ago than this, and whose log has had no entry for as long: an owner that has one open and writes nothing for so long counts as gone. It needs Prefix, Metadata or Keep: no account should be emptied by a zero value.
	OlderThan time.Duration
	Keep      func(*Database) bool // true: this one is not deleted, although it has expired or is old. Called from several goroutines; Head and Bytes are not filled in
	DryRun    bool                 // change nothing, and say what would be done
	Grace     time.Duration        // how long a creation may take, and garbage stays; default 1 h
	NoCompact bool                 // do not compact databases that nobody has open
	NoCollect bool                 // do not collect garbage
	Parallel  int                  // databases at once; default 8
	Progress  func(Progress)       // Doing is "sweep"; Done and Total are databases

	Max int // > 0: SweepReport.TooMany tells whether more databases than this remain
}

// Why a Sweep did something to a database.
const (
	SweptExpired     = "expired"      // its expiry has passed: deleted
	SweptOld         = "old"          // Janitor.OlderThan: deleted
	SweptHalfDeleted = "half deleted" // a Delete was interrupted: finished
	SweptHalfMade    = "half made"    // a creation was interrupted: ended
	SweptCompacted   = "compacted"
)

// Swept is one thing that a Sweep did, or with DryRun would do.
type Swept struct {
	Name, ID string
	Why      string // SweptExpired and so on
}

// SweepReport says what a Sweep did. With DryRun: what it would do.
type SweepReport struct {
	Databases int           // live ones that remain under Janitor.Prefix with Janitor.Metadata
	TooMany   bool          // more than Janitor.Max: alert somebody, before it is the bill that does
	Done      []Swept       // in the order of names
	Kept      []string      // expired or old, and kept: protected, or Janitor.Keep said so
	Collected CollectReport // garbage, stale pins, records of databases that never came to be
	Keys      int           // idempotency keys that were forgotten
	Local     int           // local copies in Options.Dir that a Scratch or Explore left whose process has died
	Failed    []error       // what could not be done, each with its database: the next Sweep tries again
}

// Count tells how many databases were swept for a reason.
func (r *SweepReport) Count(why string) (n int) {
	for _, s := range r.Done {
		if s.Why == why {
			n++
		}
	}
	return n
}

// Sweep is the janitor: run it on a schedule, from anywhere, with a key that may delete. It finds and ends every kind of leak: databases that have expired; with OlderThan, those that were forgotten; creations and deletions
// that a crash interrupted; pins of forks that are no more; objects that nothing needs. It compacts databases that nobody has open. Two at once are safe, and so is one that dies: the next goes on. It never takes
// what is live: what an owner has open and writes to is deleted only when it has expired, and then the owner gets [ErrExpired].
//
// The error says that the Sweep could not go on; what failed for one database alone is in SweepReport.Failed. The report is there in either case. [ErrInvalid]: a Janitor that cannot be.
func (c *Client) Sweep(ctx context.Context, j Janitor) (*SweepReport, error) {
	s := &sweep{c: c, j: j, now: c.o.time, r: &SweepReport{}, used: map[string]bool{}}
	if s.j.Grace == 0 {
		s.j.Grace = time.Hour
	}
	if s.j.Parallel <= 0 {
		s.j.Parallel = 8
	}
	if err := s.check(); err != nil {
		return s.r, err
	}
	err := s.run(ctx)
	if s.panicked != nil {
		panic(s.panicked)
	}
	slices.SortFunc(s.r.Done, func(a, b Swept) int { return compare(a.Name, b.Name, a.Why, b.Why) })
	slices.Sort(s.r.Kept)
	s.r.TooMany = j.Max > 0 && s.r.Databases > j.Max
	if err != nil {
		return s.r, fmt.Errorf("sweep: %w", public(err))
	}
	return s.r, nil
}

func compare(pairs ...string) int {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] != pairs[i+1] {
			if pairs[i] < pairs[i+1] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// sweep is one Sweep.
type sweep struct {
	c   *Client
	j   Janitor
	now func() time.Time

	mu       sync.Mutex // guards what follows
	r        *SweepReport
	done     int
	all      int
	panicked any             // of Janitor.Keep
	used     map[string]bool // hashes of the idempotency keys of live databases
}

func (s *sweep) check() error {
	if s.j.OlderThan < 0 || s.j.Grace < 0 {
		return invalid("OlderThan", "Janitor.OlderThan and Grace are not negative: %s, %s", s.j.OlderThan, s.j.Grace)
	}
	if s.j.OlderThan > 0 && s.j.Prefix == "" && len(s.j.Metadata) == 0 && s.j.Keep == nil {
		return &OptionError{"OlderThan", "Janitor.OlderThan deletes databases that do not expire: say which by Prefix, Metadata or Keep"}
	}
	return Filter{Prefix: s.j.Prefix}.check()
}

func (s *sweep) run(ctx context.Context) error {
	var err error
	if s.r.Local, err = s.c.removeLeft(s.j.DryRun); err != nil {
		s.r.Failed = append(s.r.Failed, err)
	}
	// (1) All names with a record, and all that have ended and left something.
	type job struct {
		name string
		of   []catalog.Incarnation
	}
	var jobs []job
	live := map[string]bool{}
	err = catalog.Names(ctx, s.c.store, s.j.Prefix, "", func(name string, of []catalog.Incarnation) bool {
		jobs, live[name] = append(jobs, job{name, of}), true
		return true
	})
	var marks []catalog.Mark
	if err == nil {
		err = catalog.Marks(ctx, s.c.store, s.j.Prefix, func(m catalog.Mark) { marks = append(marks, m) })
	}
	if err != nil {
		return err
	}
	s.all = len(jobs) + len(marks)
	// (2) Each on its own: what fails for one is no reason to leave the others.
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.j.Parallel)
	for _, j := range jobs {
		g.Go(func() error { return s.note(gctx, j.name, s.name(gctx, j.name, j.of)) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// (3) What has ended: garbage that outlives its name. A name that is in use again has been looked at above.
	g, gctx = errgroup.WithContext(ctx)
	g.SetLimit(s.j.Parallel)
	for _, m := range marks {
		g.Go(func() error { return s.note(gctx, m.Name, s.ended(gctx, m, live[m.Name])) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// (4) Idempotency keys that nobody will use again.
	if s.j.Prefix == "" && len(s.j.Metadata) == 0 {
		return s.keys(ctx)
	}
	return nil
}

// note records that one name is done. The error ends the sweep.
func (s *sweep) note(ctx context.Context, name string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	if s.j.Progress != nil {
		s.j.Progress(Progress{Name: name, Doing: "sweep", Done: int64(s.done), Total: int64(s.all)})
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, remote.ErrUnauthorized) || errors.Is(err, errKeepPanicked) { // it would be so for all
		return err
	}
	s.r.Failed = append(s.r.Failed, wrap(name, "sweep", err))
	return nil
}

// did reports one thing, and does it unless this is a dry run.
func (s *sweep) did(name, id, why string, do func() error) error {
	if !s.j.DryRun {
		if err := do(); err != nil {
			return fmt.Errorf("%s: %w", why, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.Done = append(s.r.Done, Swept{name, id, why})
	return nil
}

// name sweeps one name that has index records.
func (s *sweep) name(ctx context.Context, name string, of []catalog.Incarnation) error {
	var live *Database
	var key string
	picked := false
	for _, in := range of {
		r, err := catalog.Read(ctx, s.c.store, catalog.RecordKey(name, in.Slot, in.ID))
		if errors.Is(err, remote.ErrNotFound) { // done meanwhile
			continue
		}
		if err != nil {
			return err
		}
		d := fromRecord(r)
		if d.State, err = s.c.stateOf(ctx, r); err != nil {
			return err
		}
		if !(Filter{Metadata: s.j.Metadata, State: d.State}).fits(d, s.now()) {
			continue
		}
		picked = true
		gone, err := s.record(ctx, d, r)
		if err != nil {
			return err
		}
		if !gone && (d.State == StateActive || d.State == StateExpired) {
			live, key = d, r.IdempotencyKey
		}
	}
	if live != nil {
		s.mu.Lock()
		s.r.Databases++
		s.used[key] = true
		s.mu.Unlock()
	}
	if !picked {
		return nil
	}
	// What nobody has open is merged, then what nothing needs is collected.
	if live != nil && !s.j.NoCompact && !s.j.DryRun {
		if err := s.compact(ctx, live); err != nil {
			return err
		}
	}
	if s.j.NoCollect {
		return nil
	}
	_, err := s.collect(ctx, name)
	return err
}

// record looks at one incarnation by its record. gone: it has ended, or never was.
func (s *sweep) record(ctx context.Context, d *Database, r *catalog.Record) (gone bool, err error) {
	switch d.State {
	case StateDeleting:
		return true, s.did(d.Name, d.ID, SweptHalfDeleted, func() error { return s.finish(ctx, r) })
	case StateCreating, StateDeleted:
		if d.State == StateDeleted || s.now().Sub(d.CreatedAt) > s.j.Grace {
			return true, s.did(d.Name, d.ID, SweptHalfMade, func() error { return s.unmake(ctx, d.Name) })
		}
		return true, nil
	case StateExpired:
		if keep, err := s.keep(d); keep || err != nil {
			s.kept(d)
			return false, err
		}
		err := s.did(d.Name, d.ID, SweptExpired, func() error { return s.c.expire(ctx, r) })
		if errors.Is(err, errNotExpired) || errors.Is(err, ErrProtected) { // it was extended meanwhile
			return false, nil
		}
		return err == nil, err
	}
	if s.j.OlderThan == 0 || !d.ExpiresAt.IsZero() || s.now().Sub(d.CreatedAt) <= s.j.OlderThan {
		return false, nil
	}
	// Its log tells whether it is in use.
	head, err := s.c.log(d.Name).HeadHeader(ctx)
	if err != nil || head == nil || head.ID.String() != d.ID || head.Ends() || s.now().Sub(head.Time) <= s.j.OlderThan {
		return false, err
	}
	if keep, err := s.keep(d); keep || err != nil {
		s.kept(d)
		return false, err
	}
	err = s.did(d.Name, d.ID, SweptOld, func() error { return s.c.endQuiet(ctx, head, r, d.Name) })
	if errors.Is(err, ErrProtected) || errors.Is(err, fence.ErrBusy) { // or somebody has opened it: it is not forgotten
		return false, nil
	}
	return err == nil, err
}

// unmake ends the creations under a name that never came to their end, and are older than Grace (R11).
func (s *sweep) unmake(ctx context.Context, name string) error {
	r, err := gc.Records(ctx, s.c.store, name, s.options())
	s.add(r)
	return err
}

func (s *sweep) options() gc.Options {
	return gc.Options{Grace: s.j.Grace, DryRun: s.j.DryRun, Now: s.now}
}

func (s *sweep) add(r *gc.Report) {
	if r == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.Collected.add(r)
}

// keep asks Janitor.Keep. A panic in it ends the sweep, and goes on in the caller's goroutine.
func (s *sweep) keep(d *Database) (keep bool, err error) {
	if d.Protected || s.j.Keep == nil {
		return d.Protected, nil
	}
	defer func() {
		if p := recover(); p != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.panicked, err = p, errKeepPanicked
		}
	}()
	return s.j.Keep(d), nil
}

var errKeepPanicked = errors.New("Janitor.Keep panicked")

func (s *sweep) kept(d *Database) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.Kept = append(s.r.Kept, d.Name)
}

// finish ends what a Delete, or a janitor, has begun to end.
func (s *sweep) finish(ctx context.Context, r *catalog.Record) error {
	head, err := s.c.log(r.Name).HeadHeader(ctx)
	if err != nil {
		return err
	}
	if head == nil || head.Ends() || head.ID.String() != r.ID {
		return s.c.tidy(ctx, r, nil)
	}
	return s.c.end(ctx, head, r, r.Name, r.State)
}

// compact compacts a database that nobody has open, if it is worth it.
func (s *sweep) compact(ctx context.Context, d *Database) error {
	r, err := s.c.Compact(ctx, d.Name)
	switch {
	case errors.Is(err, ErrBusy) || errors.Is(err, ErrNotFound): // somebody has it open, or it was never closed, or it has ended meanwhile
		return nil
	case err != nil:
		return err
	case !r.Compacted:
		return nil
	}
	return s.did(d.Name, d.ID, SweptCompacted, func() error { return nil })
}

// collect removes what nothing needs under a name. It tells what was removed.
func (s *sweep) collect(ctx context.Context, name string) (*gc.Report, error) {
	r, err := gc.Sweep(ctx, s.c.store, name, s.options())
	s.add(r)
	return r, err
}

// ended collects what an incarnation has left, and forgets it when that is all gone.
func (s *sweep) ended(ctx context.Context, m catalog.Mark, inUse bool) error {
	if s.j.NoCollect || len(s.j.Metadata) > 0 {
		return nil
	}
	r := new(gc.Report)
	if !inUse {
		var err error
		if r, err = s.collect(ctx, m.Name); err != nil {
			return err
		}
	}
	if s.j.DryRun || r.Moved || r.Denied > 0 || r.Slots+r.Segments+r.Bases+r.Pins > 0 || s.now().Sub(m.Time) <= max(s.j.Grace, gc.LogFloor) {
		return nil
	}
	// Nothing was left to remove. What forks of it still need is looked at with them.
	pinned, _, err := s.c.store.List(ctx, fence.PinPrefix(m.Name), remote.ListOptions{Max: 1})
	if err != nil || len(pinned) > 0 {
		return err
	}
	return catalog.Remove(ctx, s.c.store, m.Key())
}

// keys forgets idempotency keys whose databases have ended, or never came to be.
func (s *sweep) keys(ctx context.Context) error {
	var old []string
	err := catalog.KeyHashes(ctx, s.c.store, func(hash string, newest time.Time) {
		if !s.used[hash] && s.now().Sub(newest) >= keepKeys {
			old = append(old, hash)
		}
	})
	if err != nil || s.j.DryRun {
		s.r.Keys = len(old)
		return err
	}
	for _, h := range old {
		ok, err := s.c.dropKey(ctx, h)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			s.r.Failed = append(s.r.Failed, err)
		}
		if ok {
			s.r.Keys++
		}
	}
	return nil
}
