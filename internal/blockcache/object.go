package blockcache

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/cespare/xxhash/v2"
)

// Object is an immutable object whose blocks, or other parts, are shared.
type Object struct {
	c     *Cache
	scope [sha256.Size]byte
}

// Object names an object: by its store, its key there, and whatever else tells its content from others that were or will be at that key ("" when there never is one).
func (c *Cache) Object(store, key, life string) *Object {
	return &Object{c, sha256.Sum256(fmt.Appendf(nil, "%q %q %q", store, key, life))}
}

// Block is what is known of a block before it is read.
type Block struct {
	Length int    // bytes
	Sum    uint64 // xxhash64 of them
}

const (
	kindBlock = 'b'
	kindBlob  = 'o'
)

// Blocks returns the contents of neighbouring blocks, the first of which has the number first. Those that are not here come from fetch, which reads the blocks i to j-1
// of them (counted from 0) at once; it is called for stretches of blocks, one after the other, and its error is returned as it is. What it returns is kept if its
// checksum is right, and returned in any case.
func (o *Object) Blocks(ctx context.Context, first int, blocks []Block, fetch func(ctx context.Context, i, j int) ([][]byte, error)) ([][]byte, error) {
	r := make([][]byte, len(blocks))
	lo, hi := o.lookUp(r, first, blocks)
	if lo == hi {
		return r, nil
	}
	unlock, err := o.c.lock(ctx, o.lockAt(first+lo), int64(hi-lo))
	if err != nil {
		return nil, err
	}
	defer unlock()
	lo, hi = o.lookUp(r, first, blocks) // what others have fetched meanwhile
	for i := lo; i < hi; i++ {
		if r[i] != nil {
			continue
		}
		j := i + 1
		for j < hi && r[j] == nil {
			j++
		}
		got, err := fetch(ctx, i, j)
		if err != nil {
			return nil, err
		}
		for k, b := range got {
			r[i+k] = b
			if want := blocks[i+k]; len(b) == want.Length && xxhash.Sum64(b) == want.Sum {
				o.c.write(o.name(first+i+k, want), b)
			}
		}
		i = j
	}
	return r, nil
}

func (o *Object) name(block int, b Block) string {
	return o.c.name(o.scope, kindBlock, int64(block), b.Length, b.Sum)
}

// lookUp reads the blocks that are here and not yet in r, and returns the stretch in which the others are.
func (o *Object) lookUp(r [][]byte, first int, blocks []Block) (lo, hi int) {
	lo = -1
	for i, b := range blocks {
		if r[i] == nil {
			r[i] = o.c.block(o.name(first+i, b), b.Length, b.Sum)
		}
		if r[i] == nil {
			if lo < 0 {
				lo = i
			}
			hi = i + 1
		}
	}
	return max(lo, 0), hi
}

// Blob returns a part of the object whose checksum is not known before, from fetch when it is not here. number tells parts from each other. The file has its own
// checksum. What fetch returns is kept if it says so: it may have been damaged on its way.
func (o *Object) Blob(ctx context.Context, number int64, fetch func(ctx context.Context) (b []byte, keep bool, err error)) ([]byte, error) {
	path := o.c.name(o.scope, kindBlob, number, 0, 0)
	if b := o.c.blob(path); b != nil {
		return b, nil
	}
	unlock, err := o.c.lock(ctx, o.lockAt(blobLock), 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if b := o.c.blob(path); b != nil {
		return b, nil
	}
	b, keep, err := fetch(ctx)
	if err == nil && keep {
		o.c.write(path, append(binary.LittleEndian.AppendUint64(make([]byte, 0, len(b)+8), xxhash.Sum64(b)), b...))
	}
	return b, err
}

// blob returns the content behind the checksum that a file begins with. A file that does not fit it is removed.
func (c *Cache) blob(path string) []byte {
	b := c.read(path)
	if b == nil {
		return nil
	}
	if len(b) < 8 || xxhash.Sum64(b[8:]) != binary.LittleEndian.Uint64(b) {
		c.o.Logger.Debug("damaged file in the shared block cache: fetched again", "file", path)
		os.Remove(path)
		return nil
	}
	return b[8:]
}

// Claim tells whether the caller is the one to fetch what belongs to a part that Blob returns: the part is not here, and nobody else has claimed it. It does not wait. The claim should be
// held until the part is here: whoever comes then finds that.
func (o *Object) Claim(number int64) (unclaim func(), ok bool) {
	path := o.c.name(o.scope, kindBlob, number, 0, 0)
	here := func() bool { _, err := os.Stat(path); return err == nil }
	if here() {
		return nil, false
	}
	unclaim, ok = o.c.tryLock(o.lockAt(claimLock), 1)
	if ok && here() { // it has come since
		unclaim()
		return nil, false
	}
	return unclaim, ok
}
