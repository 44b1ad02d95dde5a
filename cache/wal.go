package cache

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// SQLite's WAL, as https://sqlite.org/fileformat2.html#walformat says: a header of 32 bytes, then frames, each a header of 24 bytes and a page.
// All numbers are big-endian. What counts is the longest run of valid frames from the start, up to its last commit frame.
const (
	walHeaderLen   = 32
	frameHeaderLen = 24
	walMagic       = 0x377f0682 // the lowest bit set: checksums over big-endian words
	walVersion     = 3007000
)

// walPage is the newest committed version of a page in a WAL.
type walPage struct {
	at      int64 // of the page (not of the frame's header) in the WAL, bytes
	sum     uint64
	shipped bool // an older committed version in this WAL is the shipped one
	spilled bool // a committed version in this WAL is the one recorded by Spilled
	inFile  bool // a committed version in this WAL is the one in the database file: it was checkpointed
}

// walScan is what a WAL holds.
type walScan struct {
	salt1, salt2 uint32
	pageSize     uint32
	end          int64 // just behind the last commit frame; 0: nothing committed
	pageCount    uint32
	smallest     uint32 // the smallest size, in pages, that any commit in it gave the database
	pages        map[uint32]*walPage
}

// versions are the sums of a page that are known from elsewhere than the WAL.
type versions struct {
	shipped  uint64
	spilled  uint64 // the last one that Spilled recorded
	inFile   uint64 // in the database file
	isNew    bool   // it was never shipped
	unknown  bool   // shipped is not known
	hasSpill bool
	hasFile  bool // it is in the database file
}

type walFrame struct {
	page uint32
	at   int64
	sum  uint64
}

// scanWAL reads a WAL once, from its start. Memory is that of the pages' places, and of one transaction's.
func scanWAL(ctx context.Context, r io.Reader, known func(page uint32) versions) (*walScan, error) {
	w := &walScan{pages: map[uint32]*walPage{}}
	br := bufio.NewReaderSize(r, 1<<20)
	var h [walHeaderLen]byte
	if _, err := io.ReadFull(br, h[:]); err != nil {
		if isEOF(err) {
			return w, nil
		}
		return nil, err
	}
	magic := binary.BigEndian.Uint32(h[0:])
	size := binary.BigEndian.Uint32(h[8:])
	if magic&^1 != walMagic || binary.BigEndian.Uint32(h[4:]) != walVersion || !segment.ValidPageSize(int(size)) {
		return w, nil
	}
	var order binary.ByteOrder = binary.LittleEndian
	if magic&1 != 0 {
		order = binary.BigEndian
	}
	var c walChecksum
	c.add(order, h[:24])
	if c.s0 != binary.BigEndian.Uint32(h[24:]) || c.s1 != binary.BigEndian.Uint32(h[28:]) {
		return w, nil
	}
	w.pageSize = size
	w.salt1, w.salt2 = binary.BigEndian.Uint32(h[16:]), binary.BigEndian.Uint32(h[20:])

	frame := make([]byte, frameHeaderLen+int(size))
	var open []walFrame // of the transaction whose commit frame has not come yet
	for at := int64(walHeaderLen); ; at += int64(len(frame)) {
		if len(open)%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		if _, err := io.ReadFull(br, frame); err != nil {
			if isEOF(err) {
				return w, nil
			}
			return nil, err
		}
		page := binary.BigEndian.Uint32(frame[0:])
		commit := binary.BigEndian.Uint32(frame[4:])
		if page == 0 || binary.BigEndian.Uint32(frame[8:]) != w.salt1 || binary.BigEndian.Uint32(frame[12:]) != w.salt2 {
			return w, nil // of before a restart
		}
		c.add(order, frame[:8])
		c.add(order, frame[frameHeaderLen:])
		if c.s0 != binary.BigEndian.Uint32(frame[16:]) || c.s1 != binary.BigEndian.Uint32(frame[20:]) {
			return w, nil
		}
		open = append(open, walFrame{page, at + frameHeaderLen, segment.PageSum(page, frame[frameHeaderLen:])})
		if commit == 0 {
			continue
		}
		w.commit(open, commit, known)
		w.end = at + int64(len(frame))
		open = open[:0]
	}
}

func (w *walScan) commit(frames []walFrame, pageCount uint32, known func(page uint32) versions) {
	if w.end == 0 || pageCount < w.smallest {
		w.smallest = pageCount
	}
	w.pageCount = pageCount
	for _, f := range frames {
		k := known(f.page)
		p := w.pages[f.page]
		if p == nil {
			p = &walPage{}
			w.pages[f.page] = p
		} else if !k.isNew && !k.unknown && p.sum == k.shipped {
			p.shipped = true
		}
		p.at, p.sum = f.at, f.sum
		if k.hasSpill && f.sum == k.spilled {
			p.spilled = true
		}
		if k.hasFile && f.sum == k.inFile {
			p.inFile = true
		}
	}
}

// walChecksum is the running checksum of a WAL.
type walChecksum struct{ s0, s1 uint32 }

// add takes in b, whose length is a multiple of 8.
func (c *walChecksum) add(order binary.ByteOrder, b []byte) {
	s0, s1 := c.s0, c.s1
	if order == binary.ByteOrder(binary.LittleEndian) { // the usual one, without the interface's call
		for ; len(b) >= 8; b = b[8:] {
			s0 += binary.LittleEndian.Uint32(b) + s1
			s1 += binary.LittleEndian.Uint32(b[4:]) + s0
		}
	} else {
		for ; len(b) >= 8; b = b[8:] {
			s0 += binary.BigEndian.Uint32(b) + s1
			s1 += binary.BigEndian.Uint32(b[4:]) + s0
		}
	}
	c.s0, c.s1 = s0, s1
}

var errWALChanged = errors.New("WAL changed while it was read")
