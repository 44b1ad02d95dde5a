package segment

import (
	"errors"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
)

// Writer builds one payload: Add and AddRef in ascending order, then Finish. The first error stays: a payload that
// misses a page cannot be finished. It is not for concurrent use.
type Writer struct {
	pageSize int
	lock     uint32
	payload  []byte // blocks finished so far
	records  []byte // their index records
	raw      []byte // pages of the block being filled
	runs     []Run  // their numbers
	refs     []Ref
	blocks   int
	numRuns  int // of finished blocks
	pages    int
	next     uint32 // page after the last finished block, for the index's gaps
	last     uint32 // last page added
	finished bool
	err      error
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
	*w = Writer{pageSize: pageSize, next: 1, payload: w.payload[:0], records: w.records[:0], raw: w.raw[:0], runs: w.runs[:0], refs: w.refs[:0]}
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

// Pages returns how many pages were added.
func (w *Writer) Pages() int { return w.pages }

// flush ends the block being filled.
func (w *Writer) flush() error {
	if len(w.raw) == 0 {
		return nil
	}
	start := len(w.payload)
	e := encoders.Get().(*zstd.Encoder)
	w.payload = e.EncodeAll(w.raw, w.payload)
	encoders.Put(e)
	if len(w.payload)-start >= len(w.raw) {
		w.payload = append(w.payload[:start], w.raw...)
	}
	stored := w.payload[start:]
	b := Block{Kind: BlockPages, Length: len(stored), Raw: len(w.raw), Runs: w.runs, Sum: xxhash.Sum64(stored)}
	w.records, w.next = appendBlock(w.records, &b, w.next)
	w.blocks++
	w.numRuns += len(w.runs)
	w.raw, w.runs = w.raw[:0], w.runs[:0]
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
	if len(w.refs) > 0 && w.pages > 0 {
		// The same code that a reader runs: pages and refs must not overlap.
		if _, err := decodeIndex(index, f); err != nil {
			return nil, 0, w.fail(fmt.Errorf("finish payload: %w", err))
		}
	}
	w.payload = appendFooter(w.payload, f)
	return w.payload, sum, nil
}
