// Package layout finds pages in objects: the entries and segments in which the pages of a state are, newest first.
//
// It reads no log and knows no local file. What it returns has been checked against the checksums of the index that names it.
package layout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/tonbo-go/tonbo/internal/blockcache"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// ErrDamaged is an object that is not what its reader was told.
var ErrDamaged = errors.New("object damaged")

// ErrMissing is an object that should be there.
var ErrMissing = errors.New("object missing")

// indexGuess is how many bytes from the end are read at first: enough for the index of some 64 MiB of pages.
const indexGuess = 32 << 10

// Object is an immutable object that holds pages. Safe for concurrent use.
type Object struct {
	Key         string
	First, Last uint32 // page numbers, both inclusive: nothing outside is in it
	Size        int64  // bytes
	Pages       int    // how many it holds; 0: not known before its map is

	store    remote.Store
	shared   *blockcache.Object // nil: not shared
	pageSize int
	load     func(ctx context.Context) (Part, error) // reads the index otherwise than from the object's end

	turn    chan struct{} // held by who reads the index
	guessed atomic.Bool
	known   atomic.Pointer[Part]
}

// Part is what is known of an object.
type Part struct {
	Index   *segment.Index
	Start   int64  // of the payload in the object
	ETag    string // not empty: the very object meant (entries: a ghost may fill a collected slot)
	Payload []byte // when it is in memory
	Delta   []byte // of an index with deltas, when the payload is not in memory: that block as it is stored
}

// KeepDelta sets Delta from a payload that does not stay in memory: what it costs then is the block of deltas alone.
func (p *Part) KeepDelta(payload []byte) error {
	b := p.Index.Delta
	if b == nil {
		return nil
	}
	if err := b.Check(payload); err != nil { // it would stay, whatever became of it on its way
		return fmt.Errorf("%w: deltas: %w", ErrDamaged, err)
	}
	p.Delta = bytes.Clone(payload[b.Offset:end(b)])
	return nil
}

// deltas returns the block of deltas as it is stored.
func (p *Part) deltas() []byte {
	if p.Payload != nil {
		return p.Payload[p.Index.Delta.Offset:end(p.Index.Delta)]
	}
	return p.Delta
}

// Sharing is a store that shares blocks of some of its objects with other handles and processes on this machine.
type Sharing interface {
	remote.Store
	// Shared returns what shares the blocks of an object, nil: nothing.
	Shared(key string) *blockcache.Object
}

func newObject(s remote.Store, pageSize int, r segment.Ref) *Object {
	o := &Object{Key: r.Key, First: r.First, Last: r.Last, Size: r.Size, Pages: r.Pages, store: s, pageSize: pageSize, turn: make(chan struct{}, 1)}
	if s, ok := s.(Sharing); ok {
		o.shared = s.Shared(r.Key)
	}
	return o
}

// Forget lets go of a payload that is in memory, of an object that is in its store as well: blocks that are needed all the same are read from there.
func (o *Object) Forget() {
	if p := o.known.Load(); p != nil && p.Payload != nil && o.store != nil && p.Index.Delta == nil {
		o.known.Store(&Part{Index: p.Index, Start: p.Start, ETag: p.ETag})
	}
}

// Remote returns an object of which nothing has been read yet but what names it.
func Remote(s remote.Store, pageSize int, r segment.Ref) *Object { return newObject(s, pageSize, r) }

// Deferred returns an object whose index load reads, when it is needed.
func Deferred(s remote.Store, pageSize int, key string, load func(ctx context.Context) (Part, error)) *Object {
	o := newObject(s, pageSize, segment.Ref{Key: key, First: 1, Last: math.MaxUint32})
	o.load = load
	return o
}

// Loaded returns an object whose payload is in memory.
func Loaded(pageSize int, key string, ix *segment.Index, payload []byte) *Object {
	return with(newObject(nil, pageSize, segment.Ref{Key: key}), &Part{Index: ix, Payload: payload})
}

// Indexed returns an object whose index is known, and whose blocks are read when they are needed. p.Start is the payload's offset.
func Indexed(s remote.Store, pageSize int, key string, size int64, p Part) *Object {
	return with(newObject(s, pageSize, segment.Ref{Key: key, Size: size}), &p)
}

func with(o *Object, p *Part) *Object {
	o.First, o.Last = math.MaxUint32, 0
	span := func(first, last []segment.Run) {
		end := last[len(last)-1]
		o.First, o.Last = min(o.First, first[0].First), max(o.Last, end.First+(end.Count-1))
	}
	if n := len(p.Index.Blocks); n > 0 {
		span(p.Index.Blocks[0].Runs, p.Index.Blocks[n-1].Runs)
	}
	if d := p.Index.Delta; d != nil {
		span(d.Runs, d.Runs)
	}
	o.known.Store(p)
	return o
}

// Known returns the object's map if it has been read, else nil.
func (o *Object) Known() *segment.Index {
	if p := o.known.Load(); p != nil {
		return p.Index
	}
	return nil
}

// Payload returns the payload if it is in memory, else nil.
func (o *Object) Payload() []byte {
	if p := o.known.Load(); p != nil {
		return p.Payload
	}
	return nil
}

// Index returns the object's map, reading it when that has not been done: one request, two for a large one. Concurrent callers share it.
func (o *Object) Index(ctx context.Context) (*segment.Index, error) {
	p, err := o.part(ctx)
	if err != nil {
		return nil, err
	}
	return p.Index, nil
}

func (o *Object) part(ctx context.Context) (*Part, error) {
	if p := o.known.Load(); p != nil {
		return p, nil
	}
	select { // one reads; when its ctx ends, the next one does
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p := o.known.Load(); p != nil {
		return p, nil
	}
	read := o.readTail
	if o.load != nil {
		read = o.load
	}
	p, err := read(ctx)
	if err != nil {
		return nil, err
	}
	if p.Index.PageSize != o.pageSize {
		return nil, fmt.Errorf("%w: %s/%s has pages of %d bytes, want %d", ErrDamaged, o.store, o.Key, p.Index.PageSize, o.pageSize)
	}
	if n := p.Index.Pages(); o.Pages != 0 && n != o.Pages {
		return nil, fmt.Errorf("%w: %s/%s has %d pages, want %d", ErrDamaged, o.store, o.Key, n, o.Pages)
	}
	o.known.Store(&p)
	return &p, nil
}

func (o *Object) readTail(ctx context.Context) (Part, error) {
	for guess := int64(indexGuess); ; {
		b, err := o.get(ctx, remote.GetOptions{Offset: -guess})
		if err != nil {
			return Part{}, err
		}
		if o.Size != 0 && b.Size != o.Size {
			return Part{}, fmt.Errorf("%w: %s/%s has %d bytes, want %d", ErrDamaged, o.store, o.Key, b.Size, o.Size)
		}
		ix, start, need, err := segment.DecodeIndexTail(b.Body, b.Size)
		if need > guess {
			guess = need
			continue
		}
		if err != nil {
			return Part{}, fmt.Errorf("%w: %s/%s: %w", ErrDamaged, o.store, o.Key, err)
		}
		if ix.Delta != nil {
			return Part{}, fmt.Errorf("%w: %s/%s holds deltas, and should hold whole pages", ErrDamaged, o.store, o.Key)
		}
		p := Part{Index: ix, Start: start, ETag: b.ETag}
		if payload := b.Body[start:]; int64(len(b.Body)) == b.Size && ix.Check(payload) == nil { // a small one: that was all of it. What was damaged on its way is not kept, but read again when it is needed
			p.Payload = payload
		}
		return p, nil
	}
}

// Window is a stretch of an object's bytes that was read before its map was known.
type Window struct {
	o     *Object
	at    int64
	etag  string
	bytes []byte
}

// Guess reads the bytes, at most n, in the middle of which a page of the object is, if all its pages are stored equally well: with
// luck it saves waiting for the map first. Only the first call reads; later ones return nil. So does one for a shared object
// whose map is on this machine, or on its way there. Call done, which is never nil, when the map is here: until then nobody else on this machine guesses.
func (o *Object) Guess(ctx context.Context, pgno uint32, n int64) (w *Window, done func(), err error) {
	done = func() {}
	if o.load != nil || o.Size == 0 || o.store == nil || o.guessed.Swap(true) {
		return nil, done, nil
	}
	if o.shared != nil {
		unclaim, ok := o.shared.Claim(-indexGuess)
		if !ok {
			return nil, done, nil
		}
		done = unclaim
	}
	mid := int64(float64(o.Size) * (float64(pgno-o.First) + .5) / (float64(o.Last-o.First) + 1))
	at := max(0, min(mid-n/2, o.Size-n))
	b, err := o.get(ctx, remote.GetOptions{Offset: at, Length: min(n, o.Size)})
	if err != nil {
		return nil, done, err
	}
	return &Window{o, at, b.ETag, b.Body}, done, nil
}

// holds tells whether the blocks i to j-1 of o are within the window.
func (w *Window) holds(o *Object, p *Part, i, j int) bool {
	if w == nil || w.o != o || p.ETag != w.etag {
		return false
	}
	from, to := p.Start+p.Index.Blocks[i].Offset, p.Start+end(&p.Index.Blocks[j-1])
	return w.at <= from && to <= w.at+int64(len(w.bytes))
}

// Blocks reads the pages of Blocks[i:j] of the index, with one request. fn's page is valid during the call. w may have some of them already, or be nil.
func (o *Object) Blocks(ctx context.Context, i, j int, w *Window, fn func(pgno uint32, page []byte) error) error {
	p, err := o.part(ctx)
	if err != nil {
		return err
	}
	blocks := p.Index.Blocks[i:j]
	var stored [][]byte
	if o.shared != nil && p.Payload == nil {
		want := make([]blockcache.Block, len(blocks))
		for k := range blocks {
			want[k] = blockcache.Block{Length: blocks[k].Length, Sum: blocks[k].Sum}
		}
		stored, err = o.shared.Blocks(ctx, i, want, func(ctx context.Context, a, b int) ([][]byte, error) { return o.stored(ctx, p, i+a, i+b, w) })
	} else {
		stored, err = o.stored(ctx, p, i, j, w)
	}
	if err != nil {
		return err
	}
	for k := range blocks {
		if err := o.decode(&blocks[k], stored[k], fn); err != nil {
			return err
		}
	}
	return nil
}

// stored reads the blocks i to j-1 as they are stored.
func (o *Object) stored(ctx context.Context, p *Part, i, j int, w *Window) ([][]byte, error) {
	blocks := p.Index.Blocks[i:j]
	from, to := blocks[0].Offset, end(&blocks[len(blocks)-1])
	var b []byte
	switch {
	case p.Payload != nil:
		b = p.Payload[from:to]
	case w.holds(o, p, i, j):
		b = w.bytes[p.Start+from-w.at : p.Start+to-w.at]
	default:
		r, err := o.get(ctx, remote.GetOptions{Offset: p.Start + from, Length: to - from, IfMatch: p.ETag})
		if err != nil {
			return nil, err
		}
		if b = r.Body; int64(len(b)) != to-from {
			return nil, fmt.Errorf("%w: %s/%s has %d bytes at %d, want %d", ErrDamaged, o.store, o.Key, len(b), p.Start+from, to-from)
		}
	}
	r := make([][]byte, len(blocks))
	for k := range blocks {
		r[k] = b[blocks[k].Offset-from : end(&blocks[k])-from]
	}
	return r, nil
}

func end(b *segment.Block) int64 { return b.Offset + int64(b.Length) }

func (o *Object) decode(b *segment.Block, stored []byte, fn func(uint32, []byte) error) error {
	err := b.Pages(stored, o.pageSize, fn)
	if errors.Is(err, segment.ErrFormat) {
		return fmt.Errorf("%w: %s/%s: %w", ErrDamaged, o.store, o.Key, err)
	}
	return err
}

func (o *Object) get(ctx context.Context, g remote.GetOptions) (remote.Object, error) {
	r, err := o.store.Get(ctx, o.Key, g)
	switch {
	case errors.Is(err, remote.ErrNotFound):
		return r, fmt.Errorf("%w: %s/%s: %w", ErrMissing, o.store, o.Key, err)
	case errors.Is(err, remote.ErrChanged):
		return r, fmt.Errorf("%w: %s/%s is another object now: %w", ErrMissing, o.store, o.Key, err)
	}
	return r, err
}
