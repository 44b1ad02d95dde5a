package tonbo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/remote"
)

// recheckExpiry is how often an owner reads its index record again, beside a Synced, in case its expiry was brought forward.
const recheckExpiry = time.Minute

// expiring is what an owner knows of its database's expiry.
type expiring struct {
	mu      sync.Mutex
	head    *fence.Entry  // whose incarnation's record it is
	record  bool          // it has one
	at      time.Time     // zero: never
	read    time.Time     // when the record was read last
	reading chan struct{} // closed when the reading under way has ended; nil: none is
	closed  bool          // no more readings
}

// pendingRecord is the index record that is read beside what else an Open asks for before it claims.
type pendingRecord struct {
	done chan struct{}
	r    *catalog.Record
	err  error
}

// readRecord begins to read the record of head's incarnation. The caller waits for it.
func (h *handle) readRecord(ctx context.Context, head *fence.Entry) *pendingRecord {
	p := &pendingRecord{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.r, p.err = recordOf(ctx, h.store, h.name, head)
	}()
	return p
}

func (p *pendingRecord) wait() (*catalog.Record, error) {
	<-p.done
	return p.r, p.err
}

// mayOpen refuses what must not be claimed: a database that has expired, or whose deletion has begun.
func (h *handle) mayOpen(r *catalog.Record) error {
	switch {
	case r == nil:
		return nil
	case r.State == catalog.Deleting:
		return &dbError{h.name, "open", ErrDeleted, errors.New("its deletion has begun; call Delete again if it was interrupted")}
	case r.State == catalog.Expiring:
		return &dbError{h.name, "open", ErrExpired, fmt.Errorf("at %s, and a janitor has begun to delete it", r.ExpiresAt.UTC().Format(time.RFC3339))}
	case r.Expired(h.o.time()):
		return &dbError{h.name, "open", ErrExpired, fmt.Errorf("at %s; until a janitor deletes it, Client.Update can give it a later expiry", r.ExpiresAt.UTC().Format(time.RFC3339))}
	}
	return nil
}

// markReady notes in the record of a database that is opened for the first time that it was made, beside what else an Open does: from then on List need not ask its log. The function returned waits for
// it.
func (h *handle) markReady(ctx context.Context, p *pendingRecord) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err := p.wait()
		if err != nil || r == nil || r.State != catalog.Making {
			return
		}
		if err := catalog.MarkReady(ctx, h.store, r); err != nil {
			h.o.Logger.Debug("index record not marked as ready", "database", h.name, "error", err)
		}
	}()
	return func() { <-done }
}

// past tells whether the log says that the database has expired. Its index record may say otherwise; it is looked at before anything is claimed then, so that a program that opens an expired database again and again
// does not fill the log with claims.
func past(head *fence.Entry, now time.Time) bool {
	return head.Usage.Expires > 0 && now.Unix() >= int64(head.Usage.Expires)
}

// know takes in what a record says. A record that says that the database is being ended makes the next Synced look at once.
func (x *expiring) know(r *catalog.Record, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.read, x.record = now, r != nil
	if x.at = (time.Time{}); r == nil {
		return
	}
	switch {
	case r.State == catalog.Expiring:
		x.at = now
	case !r.Protected:
		x.at = r.ExpiresAt
	}
}

// seconds is when the database expires in Unix seconds, rounded down; 0: never.
func (x *expiring) seconds() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.at.IsZero() {
		return 0
	}
	return uint64(max(1, x.at.Unix()))
}

// begin sets it up for a new owner.
func (x *expiring) begin(head *fence.Entry, r *catalog.Record, now time.Time) {
	x.know(r, now)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.head = head
}

// checkExpiry is asked before a shipment. As long as the database has not expired, by this machine's clock and what it knows, that costs no request; then the record is read again: extended, we go
// on, else this handle is over. Once a minute it is read again beside the shipment, which does not wait for it. The caller holds the round.
func (h *handle) checkExpiry(ctx context.Context) error {
	x, now := &h.expiring, h.o.time()
	x.mu.Lock()
	head, due := x.head, !x.at.IsZero() && !now.Before(x.at)
	if !due && !x.closed && x.record && x.reading == nil && now.Sub(x.read) >= recheckExpiry {
		x.reading = make(chan struct{})
		go h.rereadRecord(head, x.reading)
	}
	x.mu.Unlock()
	if !due {
		return nil
	}
	r, err := recordOf(ctx, h.store, h.name, head)
	if err != nil {
		return fmt.Errorf("whether it has expired is not known: %w", err)
	}
	if r == nil || r.State == catalog.Deleting { // deleted, or about to be: the log says so
		return nil
	}
	x.know(r, now)
	if !r.Expired(now) {
		return nil
	}
	owner, _ := h.current()
	return h.over(&FencedError{Name: h.name, Generation: owner.Generation(), At: r.ExpiresAt, Expired: true})
}

// rereadRecord reads the record beside a shipment. What it cannot read, the next one reads.
func (h *handle) rereadRecord(head *fence.Entry, done chan struct{}) {
	x := &h.expiring
	ctx, cancel := context.WithTimeout(h.life, h.o.SyncTimeout)
	defer cancel()
	r, err := recordOf(ctx, h.store, h.name, head)
	if err == nil && r != nil {
		x.know(r, h.o.time())
	} else if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, remote.ErrUnknown) {
		h.o.Logger.Debug("index record not read", "database", h.name, "error", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.read = h.o.time()
	x.reading = nil
	close(done)
}

// stop waits for a reading under way; there is none from then on. The handle's life has ended.
func (x *expiring) stop() {
	x.mu.Lock()
	x.closed = true
	reading := x.reading
	x.mu.Unlock()
	if reading != nil {
		<-reading
	}
}
