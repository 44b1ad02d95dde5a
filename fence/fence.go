// Package fence is the log of a database: numbered slots on an object store, each written once, create-if-absent. It decides who
// owns a database, and nothing else does.
//
// It keeps rules R1 to R7 and R11 of docs/fencing.md. It knows no SQLite and no pages: what an entry carries is opaque bytes.
package fence

import (
	"errors"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// ID is an incarnation: a random name for what lives between a create and a delete.
type ID [16]byte

// String returns 32 hexadecimal digits.
func (id ID) String() string { return fmt.Sprintf("%x", id[:]) }

// Kind of an entry.
type Kind uint8

// Kinds of entries, in docs/fencing.md's words. The values are part of the format.
const (
	Create Kind = 1 // an incarnation begins
	Claim  Kind = 2 // an owner takes over
	Commit Kind = 3 // pages
	Base   Kind = 4 // a base is in force now
	Rewind Kind = 5 // a claim whose state is an earlier point
	Close  Kind = 6 // the owner has gone
	Delete Kind = 7 // the incarnation ends
	Void   Kind = 8 // this slot will never be a create
)

// Entry is what a slot holds.
type Entry struct {
	Kind        Kind
	ID          ID
	Slot        uint64
	Generation  uint64
	Nonce       [16]byte
	Sum         uint64 // checksum of its header; what the next entry's Prev must be
	Prev        uint64
	Base        string // key of the base in force, "" none
	Horizon     uint64
	To          uint64 // rewind: target slot
	Label       string
	Owner       string
	Time        time.Time
	Tail        []uint64 // see segment.Header
	Source      *Source  // create of a fork: the point that it starts from, see Carries
	State       State
	Usage       segment.Usage // running totals of the incarnation; zero in entries from before there were any
	Frozen      bool
	Whole       bool   // Payload holds every page
	Payload     []byte // opaque; nil when only the header was read, or nothing else is kept in memory
	PayloadSum  uint64
	PayloadSize int64 // bytes of Payload in the store; 0: carries no pages
	ETag        string
	Size        int64 // bytes of the whole object
}

// State describes the database after an entry.
type State struct {
	PageSize  uint32 // bytes
	PageCount uint32
	Checksum  uint64
}

// Draft is what a caller asks to append; its place in the log is fence's to fill in.
type Draft struct {
	Kind       Kind   // Commit, Base or Close
	State      *State // nil: as before
	Payload    []byte // nil: carries no pages
	PayloadSum uint64
	Whole      bool
	Label      string
	Base       string // Base only: its key
	BaseSlot   uint64 // Base only: the slot that it covers, at or after the owner's claim (R8)
	Horizon    uint64 // Base only: not below the horizon in force
	Frozen     bool   // Close only

	// Since is what the owner has used since its claim, up to and with this entry; Begin, Opens and ByteSeconds are fence's to fill in. Nil: the totals stay.
	Since *segment.Usage
}

// Errors, for errors.Is. A *FencedError is ErrFenced or ErrDeleted.
var (
	ErrNoDatabase = errors.New("no such database")         // no slot, or the head is a delete or void
	ErrTaken      = errors.New("database exists")          // Create: the name is in use
	ErrFenced     = errors.New("another writer took over") // Append, Check, Settle
	ErrDeleted    = errors.New("database was deleted")
	ErrFrozen     = errors.New("database is frozen")
	ErrDamaged    = errors.New("log damaged") // an entry that cannot be read or does not follow from the one before
	ErrNewer      = errors.New("log written by a newer version")
	ErrPending    = errors.New("an append is still unknown")
	ErrClosed     = errors.New("owner has closed the database")
	ErrBusy       = errors.New("database has an owner")         // Claim with IfClosed
	ErrPointGone  = errors.New("point is no longer in the log") // Rewind, fork: below the horizon, or never there
)

// Carries tells whether pages are found through this entry: in its payload, or, by a fork's create, at its source.
//
// Where a state's pages are, newest first, for a state as of entry e of a log:
//
//  1. e itself, if it carries pages;
//  2. the slots of e.Tail, from the highest down. Tail nil: every slot below e, following a rewind to its To, down to the slot of the base in force, a Whole
//     entry, or the create;
//  3. the base in force, e.Base.
//
// A Whole entry ends it: nothing below is needed. A fork's create is expanded where it stands: it has no payload, and its Tail and Base are those of the
// point Source.Slot in the log of Source.Name (the point itself included). So its pages are in the slots of its own Tail, from the highest down, read in the
// source's log (nil: as in 2, from Source.Slot in that log), and then in its Base. Such a slot may be a fork's create in turn: expanded alike. The child's entries
// name the source's base as theirs until the child has one of its own: a base whose slot is of another incarnation (Manifest.ID) lies below the child's create.
func (e *Entry) Carries() bool { return e.PayloadSize > 0 || e.Source != nil }

// Ends tells whether nothing of the incarnation follows: the entry is a delete or a void.
func (e *Entry) Ends() bool { return e.Kind == Delete || e.Kind == Void }

// Follows returns ErrDamaged unless e stands right behind prev in one log: whoever reads two neighbours asks it.
func (e *Entry) Follows(prev *Entry) error {
	if e.Slot != prev.Slot+1 || e.Prev != prev.Sum {
		return fmt.Errorf("%w: slot %d does not follow from what slot %d holds", ErrDamaged, e.Slot, prev.Slot)
	}
	return nil
}

// FencedError tells who owns the database now.
type FencedError struct {
	By     *Entry // the entry found in the place of ours or behind it
	Stored bool   // our last append is in the history all the same (R4): nothing of it is lost. False: it is not, as far as can be told
}

func (e *FencedError) Error() string {
	if e.By.Ends() {
		return fmt.Sprintf("deleted in slot %d at %s", e.By.Slot, e.By.Time.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("fenced by generation %d (%s) in slot %d at %s", e.By.Generation, e.By.Owner, e.By.Slot, e.By.Time.UTC().Format(time.RFC3339))
}

// Is makes errors.Is see ErrFenced, or ErrDeleted when the incarnation has ended or the name has a new one.
func (e *FencedError) Is(target error) bool {
	deleted := e.By.Ends() || e.By.Kind == Create
	return target == ErrDeleted && deleted || target == ErrFenced && !deleted
}
