// Package layout finds pages in objects: the entries and segments in which the pages of a state are, newest first.
//
// It reads no log and knows no local file. What it returns has been checked against the checksums of the index that names it.
package layout

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// ErrDamaged is an object that is not what its reader was told.
var ErrDamaged = errors.New("object damaged")

// ErrMissing is an object that should be there.
var ErrMissing = errors.New("object missing")

// indexGuess is how many bytes from the end are read at first: enough for the index of some 64 MiB of pages.
const indexGuess = 32 << 10

// Object is an immutable object that holds pages.
type Object struct {
	Key         string
	First, Last uint32 // page numbers, both inclusive: nothing outside is in it
	Size        int64  // bytes
	ETag        string // not empty: the very object meant (entries: a ghost may fill a collected slot)

	store    remote.Store
	pageSize int

	mu      sync.Mutex
	index   *segment.Index
	start   int64  // of the payload in the object
	payload []byte // when it is in memory
}

// Remote returns an object of which nothing has been read yet.
func Remote(s remote.Store, pageSize int, key string, first, last uint32, size int64) *Object {
	return &Object{Key: key, First: first, Last: last, Size: size, store: s, pageSize: pageSize}
}

// Loaded returns an object whose payload is in memory.
func Loaded(pageSize int, key string, ix *segment.Index, payload []byte) *Object {
	o := &Object{Key: key, pageSize: pageSize, index: ix, payload: payload}
	if n := len(ix.Blocks); n > 0 {
		last := ix.Blocks[n-1].Runs
		end := last[len(last)-1]
		o.First, o.Last = ix.Blocks[0].Runs[0].First, end.First+end.Count-1
	}
	return o
}

// Index returns the object's map, reading it when that has not been done: one request, two for a large one.
func (o *Object) Index(ctx context.Context) (*segment.Index, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.index != nil {
		return o.index, nil
	}
	for guess := int64(indexGuess); ; {
		b, err := o.get(ctx, remote.GetOptions{Offset: -guess, IfMatch: o.ETag})
		if err != nil {
			return nil, err
		}
		if o.Size != 0 && b.Size != o.Size {
			return nil, fmt.Errorf("%w: %s/%s has %d bytes, want %d", ErrDamaged, o.store, o.Key, b.Size, o.Size)
		}
		ix, start, need, err := segment.DecodeIndexTail(b.Body, b.Size)
		if need > guess {
			guess = need
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s/%s: %w", ErrDamaged, o.store, o.Key, err)
		}
		if ix.PageSize != o.pageSize {
			return nil, fmt.Errorf("%w: %s/%s has pages of %d bytes, want %d", ErrDamaged, o.store, o.Key, ix.PageSize, o.pageSize)
		}
		o.index, o.start, o.ETag = ix, start, b.ETag
		return ix, nil
	}
}

// Block reads the pages of one block of the index. fn's page is valid during the call.
func (o *Object) Block(ctx context.Context, b *segment.Block, fn func(pgno uint32, page []byte) error) error {
	if o.payload != nil {
		return o.decode(b, o.payload[b.Offset:b.Offset+int64(b.Length)], fn)
	}
	r, err := o.get(ctx, remote.GetOptions{Offset: o.start + b.Offset, Length: int64(b.Length), IfMatch: o.ETag})
	if err != nil {
		return err
	}
	return o.decode(b, r.Body, fn)
}

func (o *Object) decode(b *segment.Block, stored []byte, fn func(uint32, []byte) error) error {
	err := b.Pages(stored, o.pageSize, fn)
	if errors.Is(err, segment.ErrFormat) {
		return fmt.Errorf("%w: %s/%s: %w", ErrDamaged, o.store, o.Key, err)
	}
	return err
}

// Page copies one page into buf, if the object holds it.
func (o *Object) Page(ctx context.Context, pgno uint32, buf []byte) (found bool, err error) {
	if pgno < o.First || pgno > o.Last {
		return false, nil
	}
	ix, err := o.Index(ctx)
	if err != nil {
		return false, err
	}
	b := ix.Find(pgno)
	if b == nil {
		return false, nil
	}
	err = o.Block(ctx, b, func(p uint32, page []byte) error {
		if p == pgno {
			copy(buf, page)
			found = true
		}
		return nil
	})
	return found, err
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

// Indexed returns an object whose index is known, and whose blocks are read when they are needed. start is the payload's offset.
func Indexed(s remote.Store, pageSize int, key, etag string, size, start int64, ix *segment.Index) *Object {
	o := Loaded(pageSize, key, ix, nil)
	o.store, o.ETag, o.Size, o.start = s, etag, size, start
	return o
}
