// Package cache is one database's directory on the local disk: the lock, the database file, and the state that tells which
// of its pages the remote is known to hold.
//
// It knows no remote, no log and no SQLite connection; it reads SQLite's file and WAL formats only to verify them. Nothing in the directory is trusted that
// cannot be verified: "rebuild from empty" is always correct.
package cache

import (
	"errors"
	"fmt"
	"iter"

	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// Errors, for errors.Is.
var (
	ErrLocked  = errors.New("database is open in another process or handle")
	ErrForeign = errors.New("file is not tonbo's")
	ErrDir     = errors.New("cache directory not usable")
	ErrSums    = errors.New("pages do not have the database checksum")
	ErrAbsent  = errors.New("page is not in the local copy")
)

// LockedError is ErrLocked and names the holder.
type LockedError struct {
	Path string
	PID  int // 0: unknown
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s: open in another process; close it there, or use another Dir", e.Path)
	}
	return fmt.Sprintf("%s: open in process %d; close it there, or use another Dir", e.Path, e.PID)
}

// Is makes errors.Is see ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// PageSum is the checksum of one page: xxhash64 of its content, seeded with the page number.
type PageSum struct {
	Page uint32
	Sum  uint64
}

// State is what the directory knows of the database.
type State struct {
	Name       string
	Store      string   // where the remote is, as remote.Store's String says it
	ID         [16]byte // incarnation
	Generation uint64
	Slot       uint64 // the last slot whose pages the file holds, as far as known
	PageSize   uint32 // bytes
	Checksum   uint64 // XOR of Sums: the database checksum as of Slot

	Sums pageset.Sums // as of Slot; the lock page's is 0, and so is one that is not known

	// Known are the pages whose sum is known. A page whose sum is not known is absent from the database file, unless a commit that has not been
	// shipped wrote it: the remote has it. nil: all are known.
	Known *pageset.Bits

	Boot string // the boot of the machine that wrote it; a different one: see Recover
	Lost string // path of commits kept aside by this incarnation of the file, "" none
}

// Knows tells whether the sum of a page is known.
func (s *State) Knows(page uint32) bool { return s.Known == nil || s.Known.Has(page) }

// KnownRuns yields the pages whose sum is known, as runs, first and last.
func (s *State) KnownRuns() iter.Seq2[uint32, uint32] {
	if s.Known != nil {
		return s.Known.Runs()
	}
	return func(yield func(first, last uint32) bool) {
		if n := s.Sums.Len(); n > 0 {
			yield(1, uint32(n))
		}
	}
}

// unknown is the number of pages whose sum is not known.
func (s *State) unknown() int {
	if s.Known == nil {
		return 0
	}
	return s.Known.Len() - s.Known.Count()
}

// normalize puts the lock page among the known ones, and forgets the set when all are.
func (s *State) normalize() {
	if s.Known == nil {
		return
	}
	if segment.ValidPageSize(int(s.PageSize)) {
		s.Known.Set(segment.LockPage(int(s.PageSize)))
	}
	if s.Known.Full() {
		s.Known = nil
	}
}

// clone copies a state, of which nobody has a copy that is changed.
func (s *State) clone() *State {
	c := *s
	c.Sums, c.Known = s.Sums.Snapshot(), s.Known.Clone()
	return &c
}
