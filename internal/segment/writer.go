package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
)

// Writer builds one payload: Add and AddRef in ascending order, then Finish. The first error stays: a payload that
// misses a page cannot be finished. It is not for concurrent use.
type Writer struct {
	pageSize  int
	lock      uint32
	payload   []byte // blocks finished so far
	records   []byte // their index records
	raw       []byte // pages of the block being filled
	runs      []Run  // their numbers
	refs      []Ref
	blocks    int
	numRuns   int // of finished blocks
	pages     int
	next      uint32 // page after the last finished block, for the index's gaps
	last      uint32 // last page added
	deltas    []byte // content of the block of deltas
	deltaOf   []Run  // their pages
	after     uint32 // last of them
	numDeltas int
	check     []byte // what a delta makes
	finished  bool
	err       error
}

var errFinished = errors.New("payload already finished")

// NewWriter makes a Writer for pages of pageSize bytes. If SQLite has no such pages, each call of it fails.
func NewWriter(pageSize int) *Writer {
	w := &Writer{}
	w.Reset(pageSize)
	return w
}

// Reset makes w ready for another payload. The one returned by Finish is then no longer valid: its memory is used again.
func (w *Writer) Reset(pageSize int) {
	*w = Writer{pageSize: pageSize, next: 1, payload: w.payload[:0], records: w.records[:0], raw: w.raw[:0], runs: w.runs[:0], refs: w.refs[:0],
		deltas: w.deltas[:0], deltaOf: w.deltaOf[:0], check: w.check[:0]}
	if !ValidPageSize(pageSize) {
		w.err = fmt.Errorf("page size %d is not a power of two from %d to %d", pageSize, MinPageSize, MaxPageSize)
		return
	}
	w.lock = LockPage(pageSize)
}

func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// Add appends a page, which is copied. Page numbers ascend; the lock page is refused.
func (w *Writer) Add(pgno uint32, page []byte) error {
	switch {
	case w.err != nil:
		return w.err
	case w.finished:
		return w.fail(errFinished)
	case len(page) != w.pageSize:
		return w.fail(fmt.Errorf("page %d has %d bytes, not %d", pgno, len(page), w.pageSize))
	case pgno <= w.last || pgno > MaxPage:
		return w.fail(fmt.Errorf("page %d after page %d", pgno, w.last))
	case pgno == w.lock:
		return w.fail(fmt.Errorf("page %d is the lock page, which has no content", pgno))
	}
	if len(w.raw)+w.pageSize > BlockSize {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.raw = append(w.raw, page...)
	if n := len(w.runs); n > 0 && pgno == w.last+1 {
		w.runs[n-1].Count++
	} else {
		w.runs = append(w.runs, Run{First: pgno, Count: 1})
	}
	w.last = pgno
	w.pages++
	return nil
}

// AddDelta appends a page as a difference against old, its version as of the entry before, and tells whether it did: not if that is not worth it, or if the deltas have become too many.
// sum is the page's PageSum. Page numbers ascend, apart from those given to Add, which must be others; Finish checks that. Not for segments.
func (w *Writer) AddDelta(pgno uint32, old, page []byte, sum uint64) (bool, error) {
	switch {
	case w.err != nil:
		return false, w.err
	case w.finished:
		return false, w.fail(errFinished)
	case len(page) != w.pageSize || len(old) != w.pageSize:
		return false, w.fail(fmt.Errorf("page %d has %d bytes, before %d, not %d", pgno, len(page), len(old), w.pageSize))
	case pgno <= w.after || pgno > MaxPage:
		return false, w.fail(fmt.Errorf("delta of page %d after page %d", pgno, w.after))
	case pgno == w.lock:
		return false, w.fail(fmt.Errorf("page %d is the lock page, which has no content", pgno))
	}
	if w.numDeltas == maxDeltas {
		return false, nil
	}
	start := len(w.deltas)
	b := append(w.deltas, make([]byte, deltaRoom)...) // room for what comes before
	head := len(b)
	b = AppendDelta(b, old, page)
	w.deltas = b[:start]
	n := len(b) - head
	w.check = append(w.check[:0], page...)
	clear(w.check)
	if !applyDelta(w.check, old, b[head:]) || !bytes.Equal(w.check, page) {
		return false, w.fail(fmt.Errorf("the delta of page %d does not make it", pgno))
	}
	if n > w.pageSize-w.pageSize/4 || start+deltaRoom+n > MaxDelta {
		return false, nil
	}
	w.deltas = binary.AppendUvarint(w.deltas, uint64(n))
	w.deltas = binary.LittleEndian.AppendUint64(w.deltas, sum)
	w.deltas = append(w.deltas, b[head:]...) // it moves to the front
	if k := len(w.deltaOf); k > 0 && pgno == w.after+1 {
		w.deltaOf[k-1].Count++
	} else {
		w.deltaOf = append(w.deltaOf, Run{First: pgno, Count: 1})
	}
	w.after = pgno
	w.numDeltas++
	w.pages++
	return true, nil
}

// AddRef names a segment that holds more pages of the entry. Ranges ascend, do not overlap, and hold no page given to Add. Whether they overlap with a page is checked by Finish.
func (w *Writer) AddRef(r Ref) error {
	if w.err != nil {
		return w.err
	}
	if w.finished {
		return w.fail(errFinished)
	}
	after := uint32(0)
	if n := len(w.refs); n > 0 {
		after = w.refs[n-1].Last
	}
	if err := r.check(after, w.pageSize); err != nil {
		return w.fail(err)
	}
	if len(w.refs) == MaxRefs {
		return w.fail(fmt.Errorf("more than %d segments", MaxRefs))
	}
	w.refs = append(w.refs, r)
	return nil
}

// Len returns how many bytes the payload has so far, without its index: finished blocks as stored, pages of the block being filled as they are.
func (w *Writer) Len() int64 { return int64(len(w.payload) + len(w.raw)) }

// Pages returns how many pages were added, whole or as deltas.
func (w *Writer) Pages() int { return w.pages }

// flush ends the block being filled.
func (w *Writer) flush() error {
	if len(w.raw) == 0 {
		return nil
	}
	err := w.block(BlockPages, w.raw, w.runs)
	w.raw, w.runs = w.raw[:0], w.runs[:0]
	return err
}

// block packs content into the payload.
func (w *Writer) block(kind uint8, raw []byte, runs []Run) error {
	start := len(w.payload)
	pool := encoders
	if kind == BlockDelta {
		pool = deltaEncoders
	}
	e := pool.Get().(*zstd.Encoder)
	w.payload = e.EncodeAll(raw, w.payload)
	pool.Put(e)
	if len(w.payload)-start >= len(raw) {
		w.payload = append(w.payload[:start], raw...)
	}
	stored := w.payload[start:]
	b := Block{Kind: kind, Length: len(stored), Raw: len(raw), Runs: runs, Sum: xxhash.Sum64(stored)}
	w.records, w.next = appendBlock(w.records, &b, w.next)
	w.blocks++
	w.numRuns += len(runs)
	if len(w.records) > MaxIndex-indexHead {
		return w.fail(fmt.Errorf("index of more than %d bytes: too many pages for one object", MaxIndex))
	}
	return nil
}

// Finish returns the payload and the checksum of its index, for Header.PayloadSize and Header.PayloadSum. The payload is valid until Reset.
// Its content does not depend on where it is put. Without a page or a ref it is an empty map, not an empty slice.
func (w *Writer) Finish() (payload []byte, sum uint64, err error) {
	if w.err != nil {
		return nil, 0, w.err
	}
	if w.finished {
		return nil, 0, w.fail(errFinished)
	}
	if err := w.flush(); err != nil {
		return nil, 0, err
	}
	if len(w.deltaOf) > 0 {
		w.next = 1
		if err := w.block(BlockDelta, w.deltas, w.deltaOf); err != nil {
			return nil, 0, err
		}
	}
	w.finished = true
	at := len(w.payload)
	w.payload = appendIndexHead(w.payload, w.pageSize, w.blocks, w.numRuns, len(w.refs))
	w.payload = append(w.payload, w.records...)
	for i := range w.refs {
		w.payload = appendRef(w.payload, &w.refs[i])
	}
	index := w.payload[at:]
	if len(index) > MaxIndex || int64(len(w.payload)) > min(MaxPayload, math.MaxInt)-footerSize {
		return nil, 0, w.fail(fmt.Errorf("index of %d bytes, payload of %d: too much for one object", len(index), len(w.payload)))
	}
	sum = xxhash.Sum64(index)
	f := footer{payload: int64(len(w.payload) + footerSize), index: int64(at), sum: sum}
	if len(w.refs) > 0 && w.pages > 0 || len(w.deltaOf) > 0 {
		// The same code that a reader runs: pages, deltas and refs must not overlap.
		if _, err := decodeIndex(index, f); err != nil {
			return nil, 0, w.fail(fmt.Errorf("finish payload: %w", err))
		}
	}
	w.payload = appendFooter(w.payload, footerMagic, f)
	return w.payload, sum, nil
}
