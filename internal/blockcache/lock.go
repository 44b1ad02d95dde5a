package blockcache

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"time"
)

// Whoever fetches blocks holds locks of the operating system meanwhile, on a byte for each in one file: nothing is written there, and with the process they are gone.
// A lock decides who fetches, never what is right.
const (
	lockName  = "lock"
	blockBits = 21
	blobLock  = 1<<blockBits - 1 // the place of an object's blobs, behind those of its blocks
	claimLock = blobLock - 1     // the place of a claim
	evictLock = int64(1) << 62   // behind those of all objects
	firstPoll = time.Millisecond
	lastPoll  = 25 * time.Millisecond
)

// lockAt is the place of a block's lock. Objects that fall on the same places wait for each other without need, and no more.
func (o *Object) lockAt(block int) int64 {
	return int64(binary.BigEndian.Uint64(o.scope[:])>>(2+blockBits))<<blockBits | int64(block)&(1<<blockBits-1)
}

// lock takes n places from at on, and waits for it while somebody else has one of them, at most for the bound: then the caller goes on without. It ends when ctx
// does.
func (c *Cache) lock(ctx context.Context, at, n int64) (unlock func(), err error) {
	if unlock, got := c.tryLock(at, n); got {
		return unlock, nil
	}
	if time.Now().UnixNano() < c.impatient.Load() {
		return func() {}, nil
	}
	end := time.Now().Add(c.o.Wait)
	for poll := firstPoll; ; poll = min(poll*3/2, lastPoll) {
		t := time.NewTimer(poll)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		case <-t.C:
		}
		if unlock, got := c.tryLock(at, n); got {
			return unlock, nil
		}
		if time.Now().After(end) { // it lives, and does not get on
			c.impatient.Store(time.Now().Add(pause).UnixNano())
			return func() {}, nil
		}
	}
}

// tryLock does not wait. Where there is no such lock it lets everybody go on.
func (c *Cache) tryLock(at, n int64) (unlock func(), got bool) {
	path := filepath.Join(c.o.Dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if os.IsNotExist(err) && os.MkdirAll(c.o.Dir, 0o700) == nil {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}
	if err != nil {
		return func() {}, true
	}
	if got, err := lockRange(f, at, n); err == nil && !got {
		f.Close()
		return nil, false
	}
	return func() { f.Close() }, true
}
