// Package segment is the one container format of log entries and segments: a header, blocks of pages, an index at the tail.
//
// It turns pages into bytes and back and checks every byte that it reads. It knows no store, no log rules and no SQLite
// beyond page numbers and page sizes. The format is described byte by byte in docs/format.md.
package segment

// Kind tells what an object is.
type Kind uint8

// Kinds of log entries (DESIGN 3), and the kinds of segments and packs. Other values fail closed.
const (
	KindCreate  Kind = 1
	KindClaim   Kind = 2
	KindCommit  Kind = 3
	KindBase    Kind = 4
	KindRewind  Kind = 5
	KindClose   Kind = 6
	KindDelete  Kind = 7
	KindVoid    Kind = 8
	KindSegment Kind = 16
	KindPack    Kind = 17
)

// Flags of a header.
type Flags uint16

const (
	// FlagFrozen: the database is frozen as of this claim or close: Open refuses it, forks may start from it.
	FlagFrozen Flags = 1 << 0
	// FlagWhole: the payload holds every page of the database, so that nothing below this entry is needed.
	FlagWhole Flags = 1 << 1
	// flagUsage: a Usage follows the tail. The codec sets it.
	flagUsage Flags = 1 << 2
	// flagBaseKey: the key of the base is in numbers. The codec sets it.
	flagBaseKey Flags = 1 << 3
)

// Header is what every object begins with. In segments and packs the fields from Prev to Usage are zero.
type Header struct {
	Kind       Kind
	Flags      Flags
	ID         [16]byte // incarnation
	Generation uint64   // slot of the claim, rewind or create that its writer owns
	Slot       uint64   // entry: its slot; segment, pack: the newest slot whose pages it holds (for an upload before its entry: the slot aimed at)
	From       uint64   // segment, pack: the oldest slot whose pages it holds
	Nonce      [16]byte // random
	Time       int64    // wall clock of the writer, Unix nanoseconds
	PageSize   uint32   // bytes, 512 to 65536; 0 in void entries
	PageCount  uint32   // size of the database after it, in pages
	Checksum   uint64   // database checksum after it (XOR of PageSum over all pages but the lock page)

	Prev    uint64   // Sum of the entry before, 0 at slot 1
	Base    string   // key of the base in force, "" while there is none
	Horizon uint64   // oldest restorable slot
	To      uint64   // rewind: the slot that it goes back to
	Label   string   // user's name for this point, or ""
	Owner   string   // who wrote it, for messages
	Tail    []uint64 // ascending slots above the base (or the newest whole entry) that carry pages, this one excluded; nil: unknown, read every slot
	Source  *Source  // create of a fork
	Usage   *Usage   // running totals; nil: not recorded

	textBase bool // the key of the base is spelled out, as older builds did: what was decoded encodes to the same bytes

	PayloadSize int64  // bytes after the header
	PayloadSum  uint64 // checksum of the payload's index, which holds the checksum of each block (pack: of each payload)
}

// Source names the point that a fork starts from.
type Source struct {
	Name string
	ID   [16]byte
	Slot uint64
}
