package cache

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// replay reads a journal of size bytes, up to the first record that is not whole. good is where the next record goes: there. Errors: ErrForeign for what is not
// a journal or one of an unknown version; errDamaged for one that cannot be relied on.
func replay(r io.Reader, size int64) (j *journalState, good int64, sum uint64, err error) {
	br := bufio.NewReaderSize(r, 64<<10)
	magic := make([]byte, len(journalMagic))
	n, err := io.ReadFull(br, magic)
	switch {
	case err != nil && !isEOF(err):
		return nil, 0, 0, err
	case string(magic[:n]) == journalMagic:
	case n > len(journalFamily) && string(magic[:len(journalFamily)]) == journalFamily:
		return nil, 0, 0, fmt.Errorf("%w: state has the format %q, which this version does not know", ErrForeign, magic[:n])
	default:
		return nil, 0, 0, ErrForeign
	}
	good = int64(len(journalMagic))
	sum = sumOf(0, magic)
	for good < size {
		rec := &recordReader{r: br, left: size - good}
		torn, err := rec.head(sum)
		if err == nil && torn {
			if j == nil {
				return nil, 0, 0, fmt.Errorf("%w: it has no snapshot", errDamaged) // snapshots are renamed into place when they are whole
			}
			return j, good, sum, nil
		}
		if err != nil && j != nil && errors.Is(err, errSum) {
			j.cut = true
			return j, good, sum, nil
		}
		if err != nil {
			return nil, 0, 0, fmt.Errorf("%w at byte %d: %w", errDamaged, good, err)
		}
		// A record takes effect only when its sum has been seen to be right.
		first := j == nil
		do, err := rec.decode(first)
		if err == nil || errors.Is(err, errShort) {
			err = errors.Join(err, rec.finish())
		}
		if err != nil {
			var v *unknownKindError
			switch {
			case errors.As(err, &v):
				return nil, 0, 0, fmt.Errorf("%w: state holds a record of kind %d, which this version does not know", ErrForeign, v.kind)
			case !first && errors.Is(err, errSum): // it did not reach the disk whole
				j.cut = good+rec.total < size
				return j, good, sum, nil
			}
			return nil, 0, 0, fmt.Errorf("%w at byte %d: %w", errDamaged, good, err)
		}
		if j == nil {
			j = &journalState{spilled: map[uint32]spill{}}
		}
		if err := do(j); err != nil {
			return nil, 0, 0, fmt.Errorf("%w at byte %d: %w", errDamaged, good, err)
		}
		good += rec.total
		sum = rec.sum
	}
	if j == nil {
		return nil, 0, 0, fmt.Errorf("%w: it is empty", errDamaged)
	}
	return j, good, sum, nil
}

var (
	errShort = errors.New("record's payload does not fit its kind")
	errSum   = errors.New("wrong checksum")
)

type unknownKindError struct{ kind recordKind }

func (e *unknownKindError) Error() string { return fmt.Sprintf("unknown kind %d", e.kind) }

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// recordReader reads one record: head, decode, finish.
type recordReader struct {
	r     *bufio.Reader
	left  int64 // bytes from the record's start to the end of the file
	total int64 // bytes of the record
	kind  recordKind
	n     int64 // payload bytes not read yet
	d     *xxhash.Digest
	sum   uint64
	short bool
	err   error
}

// head reads the record's head. torn: what follows is the beginning of a record whose writer died, or zeros that a file system left.
func (r *recordReader) head(prev uint64) (torn bool, err error) {
	var h [recordHead]byte
	if _, err := io.ReadFull(r.r, h[:min(recordHead, r.left)]); err != nil {
		return false, err
	}
	if r.left < recordHead {
		return true, nil
	}
	if binary.LittleEndian.Uint32(h[8:]) != uint32(sumOf(prev, h[:8])) {
		for _, c := range h {
			if c != 0 {
				return false, errSum
			}
		}
		return r.zeros()
	}
	n := int64(binary.LittleEndian.Uint32(h[:]))
	r.kind = recordKind(h[4])
	r.n = n
	r.total = recordHead + n + recordTail
	if r.total > r.left {
		return true, nil
	}
	r.d = xxhash.NewWithSeed(prev)
	r.d.Write(h[:])
	return false, nil
}

// zeros tells whether nothing but zeros is left in the file.
func (r *recordReader) zeros() (bool, error) {
	for {
		c, err := r.r.ReadByte()
		switch {
		case err == io.EOF:
			return true, nil
		case err != nil:
			return false, err
		case c != 0:
			return false, errSum
		}
	}
}

// bytes reads n bytes of the payload.
func (r *recordReader) bytes(n int) []byte {
	if r.err != nil || r.short || int64(n) > r.n {
		r.short = true
		return make([]byte, min(n, 32)) // zeros for the fixed fields; nothing of it is used
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.r, b); err != nil {
		r.err = err
	}
	r.d.Write(b)
	r.n -= int64(n)
	return b
}

func (r *recordReader) u32() uint32 { return binary.LittleEndian.Uint32(r.bytes(4)) }
func (r *recordReader) u64() uint64 { return binary.LittleEndian.Uint64(r.bytes(8)) }

func (r *recordReader) str() string {
	n := int64(r.u32())
	if n > r.n {
		r.short = true
		return ""
	}
	return string(r.bytes(int(n)))
}

func (r *recordReader) position() walPosition {
	return walPosition{salt1: r.u32(), salt2: r.u32(), end: int64(r.u64())}
}

func (r *recordReader) pages() []PageSum {
	if r.n%12 != 0 {
		r.short = true
		return nil
	}
	ps := make([]PageSum, 0, r.n/12)
	for r.n > 0 && r.err == nil && !r.short {
		ps = append(ps, PageSum{Page: r.u32(), Sum: r.u64()})
	}
	return ps
}

// finish reads what is left of the payload and compares the sum.
func (r *recordReader) finish() error {
	if r.err == nil {
		if _, err := io.CopyN(r.d, r.r, r.n); err != nil {
			r.err = err
		}
	}
	var t [recordTail]byte
	if r.err == nil {
		_, r.err = io.ReadFull(r.r, t[:])
	}
	if r.err != nil {
		return r.err
	}
	if r.sum = r.d.Sum64(); binary.LittleEndian.Uint64(t[:]) != r.sum {
		return errSum
	}
	if r.short || r.n != 0 {
		return errShort
	}
	return nil
}

// decode reads the payload and returns what it does.
func (r *recordReader) decode(first bool) (func(*journalState) error, error) {
	begins := r.kind == recSnapshot || r.kind == recVacant || r.kind == recPartial || r.kind == recSparse
	if first != begins && r.kind >= recSnapshot && r.kind <= recSparse {
		return nil, fmt.Errorf("record of kind %d in the wrong place", r.kind)
	}
	var do func(*journalState) error
	switch r.kind {
	case recVacant:
		do = func(*journalState) error { return nil }
	case recSnapshot:
		do = r.snapshot(nil)
	case recPartial:
		do = r.snapshot(r.bits)
	case recSparse:
		do = r.snapshot(r.sparse)
	case recHydrated:
		pages := r.runs()
		do = func(j *journalState) error { return j.applyHydrated(pages) }
	case recShipped:
		slot, count, checksum, mark, pos := r.u64(), r.u32(), r.u64(), r.u64(), r.position()
		pages := r.pages()
		do = func(j *journalState) error { return j.applyShipped(slot, count, checksum, mark, pos, pages) }
	case recSpilled:
		pages := r.pages()
		do = func(j *journalState) error { j.applySpilled(pages); return nil }
	case recGeneration:
		gen, slot := r.u64(), r.u64()
		do = func(j *journalState) error { j.state.Generation, j.state.Slot, j.clean = gen, slot, nil; return nil }
	case recLost:
		path := r.str()
		do = func(j *journalState) error { j.state.Lost, j.clean = path, nil; return nil }
	case recClean:
		c := &cleanClose{inode: r.u64(), changed: r.u64(), size: int64(r.u64()), mtime: int64(r.u64())}
		do = func(j *journalState) error { j.clean = c; return nil }
	case recBefore:
		slot, seq := r.u64(), r.u64()
		do = func(j *journalState) error { j.applyBefore(slot, seq); return nil }
	case recShrunk:
		n := r.u32()
		do = func(j *journalState) error { j.applyShrunk(n); return nil }
	default:
		if err := r.finish(); err != nil && !errors.Is(err, errShort) {
			return nil, err
		}
		return nil, &unknownKindError{r.kind}
	}
	if r.short || r.n != 0 {
		r.short = true
		return do, errShort
	}
	return func(j *journalState) error {
		if j.state == nil && !begins {
			return errors.New("change of a vacant directory")
		}
		return do(j)
	}, nil
}

// sums reads those of the pages from first to last.
func (r *recordReader) sums(to *pageset.Sums, first, last uint32) {
	for p := first; p <= last && !r.short && r.err == nil; {
		for b := r.bytes(8 * int(min(4096, last-p+1))); len(b) >= 8; b = b[8:] {
			to.Set(p, binary.LittleEndian.Uint64(b))
			p++
		}
	}
}

// numbers reads n numbers of 64 bits.
func (r *recordReader) numbers(n int) []uint64 {
	v := make([]uint64, n)
	for i := 0; i < n && !r.short && r.err == nil; {
		b := r.bytes(8 * min(4096, n-i))
		for ; len(b) >= 8 && i < n; b = b[8:] {
			v[i] = binary.LittleEndian.Uint64(b)
			i++
		}
	}
	return v
}

// runs reads what encodeHydrated wrote.
func (r *recordReader) runs() []PageSum {
	var ps []PageSum
	for r.n > 0 && r.err == nil && !r.short {
		first, n := r.u32(), int64(r.u32())
		if n == 0 || 8*n > r.n || int64(first)+n > segment.MaxPage {
			r.short = true
			return nil
		}
		for i, v := range r.numbers(int(n)) {
			ps = append(ps, PageSum{Page: first + uint32(i), Sum: v})
		}
	}
	return ps
}

// bits reads which of n pages are known, a bit for each.
func (r *recordReader) bits(n int64) *pageset.Bits {
	words := (n + 63) / 64
	if 8*words > r.n {
		r.short = true
		return nil
	}
	known, ok := pageset.FromWords(r.numbers(int(words)), int(n))
	if !ok {
		r.short = true
	}
	return known
}

// sparse reads which of n pages are known, as runs of them.
func (r *recordReader) sparse(n int64) *pageset.Bits {
	runs := int64(r.u32())
	if r.short || 8*runs > r.n || n > segment.MaxPage {
		r.short = true
		return nil
	}
	known := pageset.NewBits(int(n))
	for above := uint32(0); runs > 0 && !r.short && r.err == nil; runs-- {
		first, last := r.u32(), r.u32()
		if first <= above || last < first || int64(last) > n {
			r.short = true
			return nil
		}
		known.Fill(first, last)
		above = last
	}
	return known
}

// snapshot reads a whole state, without holding its bytes beside it. known reads which sums it has, nil: all.
func (r *recordReader) snapshot(known func(pages int64) *pageset.Bits) func(*journalState) error {
	s := &State{}
	copy(s.ID[:], r.bytes(16))
	s.Generation, s.Slot, s.PageSize, s.Checksum = r.u64(), r.u64(), r.u32(), r.u64()
	seq, pos := r.u64(), r.position()
	var sh *shrink
	if n, seq := r.u32(), r.u64(); n != noShrink {
		sh = &shrink{n, seq}
	}
	s.Name, s.Store, s.Boot, s.Lost = r.str(), r.str(), r.str(), r.str()
	spilled := map[uint32]spill{}
	for n := r.u32(); n > 0 && !r.short && r.err == nil; n-- {
		p := r.u32()
		spilled[p] = spill{sum: r.u64(), seq: r.u64()}
	}
	n := int64(r.u32())
	count := n
	if known != nil && !r.short {
		if s.Known = known(n); !r.short {
			count = int64(s.Known.Count())
		}
	}
	if r.short || 8*count != r.n || n > segment.MaxPage {
		r.short = true
		return nil
	}
	s.Sums = pageset.NewSums(int(n))
	for first, last := range s.KnownRuns() {
		r.sums(&s.Sums, first, last)
	}
	return func(j *journalState) error {
		if err := s.check(); err != nil {
			return err
		}
		j.state, j.spilled, j.shrink, j.seq, j.pos = s, spilled, sh, seq, pos
		return nil
	}
}
