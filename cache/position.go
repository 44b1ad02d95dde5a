package cache

import "encoding/binary"

// walPosition says that the WAL with these salts is valid at least up to end, bytes from its start: just behind a commit frame. Two WALs, or one before and after a
// restart, have different salts. The zero value says nothing.
type walPosition struct {
	salt1, salt2 uint32
	end          int64
}

// FollowLog says who tells how far the write-ahead log goes: its salts as they stand in its header, and where its last commit frame ends, 0 for a log of none. Shipped asks, with the directory's lock held, so it must not
// wait; what it says is compared with the log at the next Open. Without it nothing is.
func (d *Dir) FollowLog(position func() (salts [8]byte, end int64)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = position
}

// logPosition asks. d.mu is held.
func (d *Dir) logPosition() walPosition {
	if d.log == nil {
		return walPosition{}
	}
	salts, end := d.log()
	if end == 0 {
		return walPosition{}
	}
	return walPosition{salt1: binary.BigEndian.Uint32(salts[:4]), salt2: binary.BigEndian.Uint32(salts[4:]), end: end}
}
