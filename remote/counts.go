package remote

import (
	"context"
	"sync/atomic"
)

// Op is a kind of request, as stores bill them.
type Op int

// Kinds of request.
const (
	OpPut Op = iota // Create and Swap
	OpGet
	OpHead
	OpList
	OpDelete
	numOps
)

// Counts tells how many requests were sent, retries included, and how many body bytes went each way.
type Counts struct {
	Put, Get, Head, List, Delete int64
	BytesUp, BytesDown           int64 // bytes of bodies
}

// Counter adds up requests. The zero value is ready; safe for concurrent use.
type Counter struct {
	ops      [numOps]atomic.Int64
	up, down atomic.Int64
}

// Counts returns the sums so far.
func (c *Counter) Counts() Counts {
	return Counts{
		Put: c.ops[OpPut].Load(), Get: c.ops[OpGet].Load(), Head: c.ops[OpHead].Load(),
		List: c.ops[OpList].Load(), Delete: c.ops[OpDelete].Load(),
		BytesUp: c.up.Load(), BytesDown: c.down.Load(),
	}
}

type counterKey struct{}

// counters are those of a request's context: a store can be counted for a client and, within it, for a handle.
type counters struct {
	c    *Counter
	next *counters
}

// Record is called by a Store for each request that it sends (a retry is another request), with the body bytes sent and received.
func Record(ctx context.Context, op Op, up, down int64) {
	list, _ := ctx.Value(counterKey{}).(*counters)
	for ; list != nil; list = list.next {
		list.c.ops[op].Add(1)
		list.c.up.Add(up)
		list.c.down.Add(down)
	}
}

// Counted returns s with every request counted in c, and in the counters that s was given before.
func Counted(s Store, c *Counter) Store { return counted{s, c} }

type counted struct {
	Store
	c *Counter
}

func (s counted) with(ctx context.Context) context.Context {
	outer, _ := ctx.Value(counterKey{}).(*counters)
	return context.WithValue(ctx, counterKey{}, &counters{s.c, outer})
}

func (s counted) Create(ctx context.Context, key string, body []byte) (string, error) {
	return s.Store.Create(s.with(ctx), key, body)
}

func (s counted) Get(ctx context.Context, key string, o GetOptions) (Object, error) {
	return s.Store.Get(s.with(ctx), key, o)
}

func (s counted) List(ctx context.Context, prefix string, o ListOptions) ([]Info, bool, error) {
	return s.Store.List(s.with(ctx), prefix, o)
}

func (s counted) Swap(ctx context.Context, key, etag string, body []byte) (string, error) {
	return s.Store.Swap(s.with(ctx), key, etag, body)
}

func (s counted) Delete(ctx context.Context, key string) error {
	return s.Store.Delete(s.with(ctx), key)
}
