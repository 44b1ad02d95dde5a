package access

import (
	"context"
	"crypto/subtle"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	maxVerdicts   = 10_000 // in memory: about 1 KiB each
	lookupsAtOnce = 64     // of different keys: whoever guesses ids does not take the store for himself
	lookupTimeout = 15 * time.Second
)

// verdict is what was found out about a key.
type verdict struct {
	*stored
	key *Key // reaches those of its databases that have not ended; nil: it is not in force
	at  time.Time
}

// cache keeps verdicts for a while.
type cache struct {
	flights singleflight.Group
	hits    atomic.Int64
	looks   atomic.Int64
	lookups chan struct{}

	mu        sync.Mutex
	m         map[string]*verdict
	looking   map[string]int
	forgotten uint64 // how often something was forgotten: what was looked up across that may be out of date
}

func newCache() *cache {
	return &cache{m: map[string]*verdict{}, looking: map[string]int{}, lookups: make(chan struct{}, lookupsAtOnce)}
}

func (c *cache) get(id string) *verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[id]
}

// forget drops the verdict on a key. One that is about to be made is not kept, and nobody who asks from now on waits for it.
func (c *cache) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten++
	delete(c.m, id)
	c.flights.Forget(id)
}

// ended drops the verdicts on keys that name the database, or any database when name is empty.
func (c *cache) ended(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten++
	for id, v := range c.m {
		if name == "" && len(v.e.Databases) > 0 || slices.ContainsFunc(v.e.Databases, func(d named) bool { return d.Name == name }) {
			delete(c.m, id)
		}
	}
	for id := range c.looking { // not known yet what these name
		c.flights.Forget(id)
	}
}

// Ended tells that a database has ended: the next request with a key that names it looks again.
func (k *Keys) Ended(name string) { k.cache.ended(name) }

// EndedSome is Ended for a database whose name is not known.
func (k *Keys) EndedSome() { k.cache.ended("") }

// Verdicts tells how often a verdict was in the cache, and how often the store was asked.
func (k *Keys) Verdicts() (hits, looks int64) { return k.cache.hits.Load(), k.cache.looks.Load() }

// Verify returns the key that a secret stands for. [ErrRefused]: none that is in force. Any other error is the store's. A verdict that is in the cache costs nothing; else a LIST, a GET when the key has changed since this process
// has last read it, and a LIST and a GET for each database that it names.
func (k *Keys) Verify(ctx context.Context, secret string) (*Key, error) {
	id, ok := idOf(secret)
	if !ok {
		return nil, ErrRefused
	}
	hash := hashOf(secret)
	now := k.o.Now()
	v := k.cache.get(id)
	if v == nil || now.Sub(v.at) >= k.o.Cache || now.Before(v.at) || !v.fits(hash) { // a secret that does not fit may be newer than the verdict
		var err error
		if v, err = k.lookUp(ctx, id); err != nil {
			return nil, err
		}
	} else {
		k.cache.hits.Add(1)
	}
	if v == nil || v.key == nil || !v.fits(hash) || v.key.expired(now) {
		return nil, ErrRefused
	}
	return v.key, nil
}

// fits compares hashes in a time that does not depend on them.
func (v *verdict) fits(hash [32]byte) bool {
	return subtle.ConstantTimeCompare(v.e.hash[:], hash[:]) == 1
}

func (k *Key) expired(now time.Time) bool { return !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt) }

// lookUp makes a verdict. Those who ask for the same key at once share one look at the store. nil: there is no such key.
func (k *Keys) lookUp(ctx context.Context, id string) (*verdict, error) {
	made, err, _ := k.cache.flights.Do(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout) // others wait for it, too
		defer cancel()
		select {
		case k.cache.lookups <- struct{}{}:
			defer func() { <-k.cache.lookups }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return k.look(ctx, id)
	})
	if err != nil {
		return nil, fmt.Errorf("look up a key: %w", err)
	}
	v, _ := made.(*verdict)
	return v, nil
}

func (k *Keys) look(ctx context.Context, id string) (*verdict, error) {
	c := k.cache
	c.looks.Add(1)
	c.mu.Lock()
	before := c.forgotten
	c.looking[id]++
	var last *stored
	if v := c.m[id]; v != nil {
		last = v.stored
	}
	c.mu.Unlock()

	at := k.o.Now() // before the store is asked: a verdict is as old as what it rests on
	v, err := k.judge(ctx, id, last, at)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looking[id]--; c.looking[id] == 0 {
		delete(c.looking, id)
	}
	if err != nil || v == nil {
		delete(c.m, id)
		return nil, err
	}
	if c.forgotten == before {
		if len(c.m) >= maxVerdicts {
			for old := range c.m { // any one: it is asked for again
				delete(c.m, old)
				break
			}
		}
		c.m[id] = v
	}
	return v, nil
}

// judge asks the store about a key.
func (k *Keys) judge(ctx context.Context, id string, last *stored, at time.Time) (*verdict, error) {
	h, err := k.head(ctx, id, last)
	if h == nil || err != nil {
		return nil, err
	}
	v := &verdict{stored: h, at: at}
	if h.e.Kind == revoked {
		return v, nil
	}
	key := h.e.key(id)
	if len(h.e.Databases) > 0 {
		if key.Databases, err = k.standing(ctx, h.e.Databases); err != nil {
			return nil, err
		}
		if len(key.Databases)+len(key.Prefixes) == 0 { // all that it names has ended
			return v, nil
		}
	}
	v.key = key
	return v, nil
}
