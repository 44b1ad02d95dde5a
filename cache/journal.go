package cache

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo/internal/pageset"
)

// The file `state` is a journal: a magic, then records. The first record is a snapshot (or says that the directory is vacant), each later
// one a change. All integers are little-endian.
//
//	record  length of the payload u32 | kind u8 | 3 zero bytes | check of these 8 bytes u32 | payload | sum u64
//
// The sum is the xxhash64 of all before it in the record, seeded with the sum of the record before: a record cannot be left out, moved, or
// survive from another file. A record that runs into the end of the file was being appended when the process died: it is cut off.
// So is everything from a wrong one on, wherever that is: appends that were not synced reach the disk in any order, and a power cut may leave
// a later one without an earlier one. What is left is the state of an earlier moment, which is verified as any other.
const (
	journalMagic   = "tonbo state v1\n\x00"
	journalFamily  = "tonbo state v"
	recordHead     = 12
	recordTail     = 8
	shippedFixed   = 8 + 4 + 8 + 8 + walPositionLen
	walPositionLen = 4 + 4 + 8
	noShrink       = 1<<32 - 1 // no database has so many pages
)

type recordKind uint8

const (
	recSnapshot   recordKind = 1
	recVacant     recordKind = 2
	recShipped    recordKind = 3
	recSpilled    recordKind = 4
	recGeneration recordKind = 5
	recLost       recordKind = 6
	recClean      recordKind = 7
	recShrunk     recordKind = 8
	recPartial    recordKind = 9 // a snapshot that lacks sums
	recHydrated   recordKind = 10
	recSparse     recordKind = 11 // a snapshot that lacks sums, and lists those that it has as runs of pages
	recBefore     recordKind = 12 // which entries were captured after a Spilled or Shrunk
)

// errDamaged: the journal is ours and cannot be read.
var errDamaged = errors.New("state is damaged")

// spill is unshipped content that a checkpoint was allowed to write into the database file.
type spill struct {
	sum uint64
	seq uint64 // which Spilled call
}

// shrink is a size, in pages, that an unshipped commit gave the database, smaller than before.
type shrink struct {
	pageCount uint32
	seq       uint64 // as in spill
}

// cleanClose identifies the database file as it was when it was closed.
type cleanClose struct {
	inode, changed uint64
	size, mtime    int64 // bytes, Unix nanoseconds
}

// journalState is what a journal says: the state and what goes with it.
type journalState struct {
	state   *State // nil: vacant
	spilled map[uint32]spill
	shrink  *shrink     // the smallest one since what was shipped; nil: none
	seq     uint64      // of the last Spilled or Shrunk
	pos     walPosition // how far the WAL reached at the last Shipped

	// before tells, for a Spilled or Shrunk, a slot: entries above it were captured later, and hold what it told of or something newer. Without it that is not known.
	before map[uint64]uint64

	clean *cleanClose
	cut   bool // records from a wrong one on were cut off: some that were synced may have been among them, if the disk was damaged
}

// apply* are the one meaning of each change, for the live Dir and for replay.

// applyShipped makes slot's pages the shipped ones; it refuses, changing nothing, what does not add up to the database checksum.
func (j *journalState) applyShipped(slot uint64, pageCount uint32, checksum, mark uint64, pos walPosition, pages []PageSum) error {
	if err := overlay(j.state, pageCount, checksum, pages); err != nil {
		return fmt.Errorf("slot %d: %w", slot, err)
	}
	j.state.Slot = slot
	for _, p := range pages {
		if s, ok := j.spilled[p.Page]; ok && s.sum == p.Sum {
			delete(j.spilled, p.Page)
		}
	}
	for p, s := range j.spilled {
		if s.seq <= mark {
			delete(j.spilled, p)
		}
	}
	if j.shrink != nil && j.shrink.seq <= mark {
		j.shrink = nil
	}
	if len(j.spilled) == 0 && j.shrink == nil {
		j.before = nil
	}
	maps.DeleteFunc(j.before, func(seq, _ uint64) bool { return seq <= mark }) // of these nothing is left
	j.pos = pos
	j.clean = nil
	return nil
}

func (j *journalState) applyBefore(slot, seq uint64) {
	if j.before == nil {
		j.before = map[uint64]uint64{}
	}
	j.before[seq] = slot
}

// asOf leaves out what was spilled, and how the database shrank, before the entry in slot was captured.
func (j *journalState) asOf(slot uint64) *journalState {
	c := *j
	older := func(seq uint64) bool {
		b, ok := j.before[seq]
		return ok && b < slot
	}
	c.spilled = map[uint32]spill{}
	for p, s := range j.spilled {
		if !older(s.seq) {
			c.spilled[p] = s
		}
	}
	if c.shrink != nil && older(c.shrink.seq) {
		c.shrink = nil
	}
	return &c
}

func (j *journalState) applySpilled(pages []PageSum) {
	j.seq++
	for _, p := range pages {
		j.spilled[p.Page] = spill{sum: p.Sum, seq: j.seq}
	}
	j.clean = nil
}

func (j *journalState) applyShrunk(pageCount uint32) {
	j.seq++
	for p := range j.spilled {
		if p > pageCount {
			delete(j.spilled, p)
		}
	}
	if j.shrink == nil || pageCount <= j.shrink.pageCount {
		j.shrink = &shrink{pageCount, j.seq}
	} else {
		j.shrink.seq = j.seq
	}
	j.clean = nil
}

// shrunk tells whether the database has been smaller than page since what was shipped.
func (j *journalState) shrunk(page uint32) bool { return j.shrink != nil && page > j.shrink.pageCount }

// applyHydrated makes sums known that were not. When none is left after it, all of them must add up to the database checksum.
func (j *journalState) applyHydrated(pages []PageSum) error {
	s := j.state
	for _, p := range pages {
		if p.Page == 0 || int(p.Page) > s.Sums.Len() || s.Knows(p.Page) {
			return fmt.Errorf("page %d is known, or outside of a database of %d pages", p.Page, s.Sums.Len())
		}
	}
	for _, p := range pages {
		s.Sums.Set(p.Page, p.Sum)
		s.Known.Set(p.Page)
	}
	if s.unknown() == 0 {
		if x := s.Sums.Xor(); x != s.Checksum {
			for _, p := range pages {
				s.Sums.Set(p.Page, 0)
				s.Known.Clear(p.Page)
			}
			return fmt.Errorf("%w: %016x, slot %d has %016x", ErrSums, x, s.Slot, s.Checksum)
		}
	}
	s.normalize()
	j.clean = nil
	return nil
}

// overlay lays pages over the sums of s, at the size pageCount, after checking the whole against checksum, as far as the sums that this takes are known. It
// changes s only when the result is right.
func overlay(s *State, pageCount uint32, checksum uint64, pages []PageSum) error {
	old := s.Sums.Len()
	stay := min(old, int(pageCount))
	x, grown := s.Checksum, 1 // the lock page is in no list
	exact, unknown := true, s.unknown()
	for p := uint32(stay) + 1; p <= uint32(old); p++ {
		x ^= s.Sums.At(p)
		if !s.Knows(p) {
			exact = false
			unknown--
		}
	}
	for _, p := range pages {
		if p.Page == 0 || p.Page > pageCount {
			return fmt.Errorf("page %d outside of a database of %d pages", p.Page, pageCount)
		}
		if int(p.Page) <= old {
			x ^= s.Sums.At(p.Page)
			if !s.Knows(p.Page) {
				exact = false
				unknown--
			}
		} else {
			grown++
		}
		x ^= p.Sum
	}
	if int64(pageCount)-int64(old) > int64(grown) {
		return fmt.Errorf("database grows from %d to %d pages and only %d of the new ones are given", old, pageCount, grown-1)
	}
	if !exact && unknown == 0 { // then the sums of the whole are known
		exact, x = true, s.Sums.Xor()
		for p := uint32(stay) + 1; p <= uint32(old); p++ {
			x ^= s.Sums.At(p)
		}
		for _, p := range pages {
			x ^= s.Sums.At(p.Page) ^ p.Sum
		}
	}
	if exact && x != checksum {
		return fmt.Errorf("page sums give the database checksum %016x, not %016x", x, checksum)
	}
	s.Sums.Resize(int(pageCount))
	if s.Known != nil {
		s.Known.Resize(int(pageCount))
	}
	for _, p := range pages {
		s.Sums.Set(p.Page, p.Sum)
		if s.Known != nil {
			s.Known.Set(p.Page)
		}
	}
	s.Checksum = checksum
	s.normalize()
	return nil
}

// appendRecord appends one record to b.
func appendRecord(b []byte, kind recordKind, prev uint64, payload []byte) ([]byte, uint64) {
	start := len(b)
	b = appendHead(b, kind, prev, uint32(len(payload)))
	b = append(b, payload...)
	sum := sumOf(prev, b[start:])
	return binary.LittleEndian.AppendUint64(b, sum), sum
}

func appendHead(b []byte, kind recordKind, prev uint64, n uint32) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, n)
	b = append(b, byte(kind), 0, 0, 0)
	return binary.LittleEndian.AppendUint32(b, uint32(sumOf(prev, b[start:])))
}

func sumOf(seed uint64, b []byte) uint64 {
	d := xxhash.NewWithSeed(seed)
	d.Write(b)
	return d.Sum64()
}

func appendPages(b []byte, pages []PageSum) []byte {
	for _, p := range pages {
		b = binary.LittleEndian.AppendUint32(b, p.Page)
		b = binary.LittleEndian.AppendUint64(b, p.Sum)
	}
	return b
}

func appendPosition(b []byte, p walPosition) []byte {
	b = binary.LittleEndian.AppendUint32(b, p.salt1)
	b = binary.LittleEndian.AppendUint32(b, p.salt2)
	return binary.LittleEndian.AppendUint64(b, uint64(p.end))
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

func encodeShipped(slot uint64, pageCount uint32, checksum, mark uint64, pos walPosition, pages []PageSum) []byte {
	b := make([]byte, 0, shippedFixed+12*len(pages))
	b = binary.LittleEndian.AppendUint64(b, slot)
	b = binary.LittleEndian.AppendUint32(b, pageCount)
	b = binary.LittleEndian.AppendUint64(b, checksum)
	b = binary.LittleEndian.AppendUint64(b, mark)
	b = appendPosition(b, pos)
	return appendPages(b, pages)
}

// encodeHydrated writes runs of neighbouring pages: first, count, sums.
func encodeHydrated(pages []PageSum) []byte {
	b := make([]byte, 0, 8*len(pages)+64)
	for i := 0; i < len(pages); {
		n := 1
		for i+n < len(pages) && pages[i+n].Page == pages[i].Page+uint32(n) {
			n++
		}
		b = binary.LittleEndian.AppendUint32(b, pages[i].Page)
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
		for _, p := range pages[i : i+n] {
			b = binary.LittleEndian.AppendUint64(b, p.Sum)
		}
		i += n
	}
	return b
}

func encodeClean(c cleanClose) []byte {
	b := binary.LittleEndian.AppendUint64(nil, c.inode)
	b = binary.LittleEndian.AppendUint64(b, c.changed)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.size))
	return binary.LittleEndian.AppendUint64(b, uint64(c.mtime))
}

// writeJournal writes a whole journal: a snapshot, and what goes with it. It returns its length in bytes and the sum of the last record.
func writeJournal(w io.Writer, j *journalState) (size int64, sum uint64, err error) {
	seed := sumOf(0, []byte(journalMagic))
	if j.state == nil {
		b, sum := appendRecord([]byte(journalMagic), recVacant, seed, nil)
		_, err := w.Write(b)
		return int64(len(b)), sum, err
	}
	size, sum, err = writeSnapshot(w, j, seed)
	if err != nil || len(j.before) == 0 {
		return size, sum, err
	}
	var b []byte
	for _, seq := range slices.Sorted(maps.Keys(j.before)) {
		b, sum = appendRecord(b, recBefore, sum, encodeBefore(j.before[seq], seq))
	}
	n, err := w.Write(b)
	return size + int64(n), sum, err
}

func encodeBefore(slot, seq uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, slot), seq)
}

// writeSnapshot writes the magic and the snapshot of a state.
func writeSnapshot(w io.Writer, j *journalState, seed uint64) (size int64, sum uint64, err error) {
	s := j.state
	b := append([]byte(nil), s.ID[:]...)
	b = binary.LittleEndian.AppendUint64(b, s.Generation)
	b = binary.LittleEndian.AppendUint64(b, s.Slot)
	b = binary.LittleEndian.AppendUint32(b, s.PageSize)
	b = binary.LittleEndian.AppendUint64(b, s.Checksum)
	b = binary.LittleEndian.AppendUint64(b, j.seq)
	b = appendPosition(b, j.pos)
	sh := shrink{pageCount: noShrink}
	if j.shrink != nil {
		sh = *j.shrink
	}
	b = binary.LittleEndian.AppendUint32(b, sh.pageCount)
	b = binary.LittleEndian.AppendUint64(b, sh.seq)
	for _, t := range []string{s.Name, s.Store, s.Boot, s.Lost} {
		b = appendString(b, t)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(j.spilled)))
	for p, sp := range j.spilled {
		b = binary.LittleEndian.AppendUint32(b, p)
		b = binary.LittleEndian.AppendUint64(b, sp.sum)
		b = binary.LittleEndian.AppendUint64(b, sp.seq)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(s.Sums.Len()))
	kind, b := appendKnown(b, s.Known)
	n := int64(len(b)) + 8*int64(s.Sums.Len()-s.unknown())
	if n > 1<<32-1 {
		return 0, 0, fmt.Errorf("state of %d pages is too large", s.Sums.Len())
	}
	d := xxhash.NewWithSeed(seed)
	bw := bufio.NewWriterSize(w, 64<<10)
	out := io.MultiWriter(d, bw)
	bw.WriteString(journalMagic) // errors stay in bw until Flush
	out.Write(appendHead(nil, kind, seed, uint32(n)))
	out.Write(b)
	chunk := make([]byte, 0, 32<<10)
	for first, last := range s.KnownRuns() {
		for p := first; p <= last; p++ {
			if chunk = binary.LittleEndian.AppendUint64(chunk, s.Sums.At(p)); len(chunk) == cap(chunk) {
				if _, err := out.Write(chunk); err != nil {
					return 0, 0, err
				}
				chunk = chunk[:0]
			}
		}
	}
	out.Write(chunk)
	sum = d.Sum64()
	bw.Write(binary.LittleEndian.AppendUint64(nil, sum))
	return int64(len(journalMagic)) + recordHead + n + recordTail, sum, bw.Flush()
}

// appendKnown says which sums a snapshot has, in fewer bytes: of a database that has just been begun, a few runs of pages; of one that is nearly all there, or that was read here and
// there, a bit for each page. It returns the kind of such a snapshot.
func appendKnown(b []byte, known *pageset.Bits) (recordKind, []byte) {
	if known == nil {
		return recSnapshot, b
	}
	words, start, runs := known.Words(), len(b), 0
	b = binary.LittleEndian.AppendUint32(b, 0)
	for first, last := range known.Runs() {
		if runs++; runs > len(words) {
			b = b[:start]
			for _, w := range words {
				b = binary.LittleEndian.AppendUint64(b, w)
			}
			return recPartial, b
		}
		b = binary.LittleEndian.AppendUint32(b, first)
		b = binary.LittleEndian.AppendUint32(b, last)
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(runs))
	return recSparse, b
}
