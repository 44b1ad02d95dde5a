// Package cache is one database's directory on the local disk: the lock, the database file, and the state that tells which
// of its pages the remote is known to hold.
//
// It knows no remote, no log and no SQLite connection; it reads SQLite's file and WAL formats only to verify them. Nothing in the directory is trusted that
// cannot be verified: "rebuild from empty" is always correct.
package cache

import (
	"errors"
	"fmt"
)

// Errors, for errors.Is.
var (
	ErrLocked  = errors.New("database is open in another process or handle")
	ErrForeign = errors.New("file is not tonbo's")
	ErrDir     = errors.New("cache directory not usable")
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
	Slot       uint64   // the last slot whose pages the file holds, as far as known
	PageSize   uint32   // bytes
	Checksum   uint64   // XOR of Sums: the database checksum as of Slot
	Sums       []uint64 // by page number - 1, as of Slot; the lock page's is 0
	Boot       string   // the boot of the machine that wrote it; a different one: see Recover
	Lost       string   // path of commits kept aside by this incarnation of the file, "" none
}
