package tonbo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/remote"
)

// Filter picks databases. The zero value picks all there are. What it names must all be so.
type Filter struct {
	Prefix    string            // of the name
	Metadata  map[string]string // these pairs, and any others
	State     string            // one of the constants StateActive and so on; "": all but StateDeleted
	OlderThan time.Duration     // created longer ago than this
	NewerThan time.Duration     // created less long ago than this
	Owner     string            // created by this Options.Owner
	Limit     int               // at most so many; 0: all
	After     string            // only names that come after this one: the last one of the page before
	// NamesOnly asks for nothing but names: Name and ID are filled in, and no database costs a request. Those that are being created or deleted are among them. It goes with Prefix, Limit and
	// After alone.
	NamesOnly bool
}

// parallelRows is how many index records List reads at once.
const parallelRows = 16

// plain tells whether the filter needs names alone.
func (f Filter) plain() bool {
	return len(f.Metadata) == 0 && f.State == "" && f.OlderThan == 0 && f.NewerThan == 0 && f.Owner == ""
}

func (f Filter) check() error {
	if f.NamesOnly && !f.plain() {
		return &OptionError{"NamesOnly", "the filter asks for more than names"}
	}
	if f.Limit < 0 || f.OlderThan < 0 || f.NewerThan < 0 {
		return invalid("Limit", "Filter.Limit, OlderThan and NewerThan are not negative: %d, %s, %s", f.Limit, f.OlderThan, f.NewerThan)
	}
	switch f.State {
	case "", StateCreating, StateActive, StateExpired, StateDeleting, StateDeleted:
	default:
		return &OptionError{"State", fmt.Sprintf("%q is no state: creating, active, expired, deleting or deleted", f.State)}
	}
	if err := remote.CheckPrefix(catalog.RecordPrefix + f.Prefix); err != nil || strings.Contains(f.Prefix, "/") {
		return &OptionError{"Prefix", fmt.Sprintf("no name can begin with %.220q", f.Prefix)}
	}
	if f.After != "" {
		if err := ValidateName(f.After); err != nil {
			return &OptionError{"After", err.Error()}
		}
	}
	return nil
}

// fits tells whether a database is picked, by all but its name.
func (f Filter) fits(d *Database, now time.Time) bool {
	switch {
	case f.State == "" && d.State == StateDeleted, f.State != "" && d.State != f.State,
		f.Owner != "" && d.CreatedBy != f.Owner,
		f.OlderThan > 0 && now.Sub(d.CreatedAt) <= f.OlderThan,
		f.NewerThan > 0 && now.Sub(d.CreatedAt) >= f.NewerThan:
		return false
	}
	for k, v := range f.Metadata {
		if got, ok := d.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// List yields the account's databases as they are found, one a name: a LIST per 1,000 index records and a GET for each (16 at once), and for one that is not known to be made, LIST and GET of its
// log's head. Head and Bytes are not filled in: see Get. They come in the order of their names, byte by byte, but a name comes behind those that go on from it with - or . (run-1-a,
// run-1.a, run-1, run-10, run-1:a): the order of the remote's keys. What is created or deleted meanwhile may be there or not. An error ends it; so does the loop's end, and then nothing runs on. A record that is damaged keeps no other from being listed: the error that names it comes last ([ErrCorrupt]).
func (c *Client) List(ctx context.Context, f Filter) iter.Seq2[*Database, error] {
	return func(yield func(*Database, error) bool) {
		err := f.check()
		if err == nil {
			err = c.list(ctx, f, func(d *Database) bool { return yield(d, nil) })
		}
		if err != nil {
			yield(nil, fmt.Errorf("list databases: %w", public(err)))
		}
	}
}

// Count counts what List would yield. A filter by nothing but a prefix needs a LIST per 1,000 databases and no other request, and then counts what counts against Options.MaxDatabases: those
// being created or deleted as well.
func (c *Client) Count(ctx context.Context, f Filter) (int, error) {
	f.NamesOnly = f.NamesOnly || f.plain()
	err := f.check()
	n := 0
	if err == nil {
		err = c.list(ctx, f, func(*Database) bool { n++; return true })
	}
	if err != nil {
		return 0, fmt.Errorf("count databases: %w", public(err))
	}
	return n, nil
}

// list calls fn with each database, until it returns false.
func (c *Client) list(ctx context.Context, f Filter, fn func(*Database) bool) error {
	left := f.Limit
	give := func(d *Database) bool {
		if !fn(d) {
			return false
		}
		left--
		return left != 0
	}
	if f.NamesOnly {
		return catalog.Names(ctx, c.store, f.Prefix, f.After, func(name string, of []catalog.Incarnation) bool {
			return give(&Database{Name: name, ID: of[len(of)-1].ID.String()})
		})
	}
	// Names come from one goroutine, their rows from others, a few ahead of the caller; they are taken in the order of the names.
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	rows := make(chan chan row, parallelRows)
	defer func() {
		cancel()
		for range rows { // until the names have ended
		}
		wg.Wait()
	}()
	var failed error // of the LISTs; read when rows is closed
	wg.Go(func() {
		defer close(rows)
		failed = catalog.Names(ctx, c.store, f.Prefix, f.After, func(name string, of []catalog.Incarnation) bool {
			one := make(chan row, 1)
			select {
			case rows <- one:
			case <-ctx.Done():
				return false
			}
			wg.Go(func() {
				d, err := c.row(ctx, name, of)
				one <- row{d, err}
			})
			return true
		})
	})
	var damaged []error
	for one := range rows {
		r := <-one
		if errors.Is(r.err, catalog.ErrDamaged) || errors.Is(r.err, remote.ErrDamaged) || errors.Is(r.err, fence.ErrDamaged) {
			damaged = append(damaged, r.err)
			continue
		}
		if r.err != nil {
			return r.err
		}
		if r.d != nil && f.fits(r.d, c.o.time()) && !give(r.d) {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return errors.Join(damaged...)
}

// row is what one name comes to.
type row struct {
	d   *Database
	err error
}

// row describes the live incarnation of a name, or, without one, the newest of those that have a record. nil: none of them has one any more.
func (c *Client) row(ctx context.Context, name string, of []catalog.Incarnation) (best *Database, err error) {
	for i := len(of) - 1; i >= 0; i-- {
		r, err := catalog.Read(ctx, c.store, catalog.RecordKey(name, of[i].Slot, of[i].ID))
		if errors.Is(err, remote.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		d := fromRecord(r)
		d.Metadata = maps.Clone(d.Metadata)
		if d.State, err = c.stateOf(ctx, r); err != nil {
			return nil, err
		}
		if best == nil || best.State == StateDeleted || d.State == StateActive || d.State == StateExpired {
			best = d
		}
		if d.State == StateActive || d.State == StateExpired {
			break
		}
	}
	return best, nil
}

// stateOf is the state of the database that a record is of. A record that is not known to be of a live one asks the log.
func (c *Client) stateOf(ctx context.Context, r *catalog.Record) (string, error) {
	if r.State == catalog.Ready {
		return liveState(r, c.o.time()), nil
	}
	head, err := c.log(r.Name).HeadHeader(ctx)
	switch {
	case err != nil:
		return "", err
	case head != nil && head.ID.String() == r.ID && !head.Ends():
		return liveState(r, c.o.time()), nil
	case r.State != catalog.Making:
		return StateDeleting, nil
	case head == nil || head.Slot < r.Slot:
		return StateCreating, nil
	}
	return StateDeleted, nil
}
