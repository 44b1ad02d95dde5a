package segment

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Usage is what an incarnation has cost up to and with an entry: running totals, so that the newest entry tells the sum whatever has been collected below it. Nothing is decided by it.
type Usage struct {
	Begin                        uint64  // slot of the incarnation's create: with the id, the key of its index record; 0: not known
	Expires                      uint64  // Unix seconds: when it was to expire, as its owner last saw it; 0: never. Its index record decides
	Opens                        uint64  // claims by those who opened the database; a janitor's do not count
	Commits                      uint64  // transactions shipped
	Units                        uint64  // of 10 KiB shipped, at least one a commit
	Put, Get, Head, List, Delete uint64  // requests of its owners
	Up, Down                     uint64  // body bytes of these requests
	Stored                       uint64  // bytes in the remote as of this entry, as its owner counts them
	ByteSeconds                  float64 // Stored, summed over the time up to this entry; finite, not negative
}

// counters are the fields in the order of the format, but ByteSeconds, which is last.
func (u *Usage) counters() [13]*uint64 {
	return [...]*uint64{&u.Begin, &u.Expires, &u.Opens, &u.Commits, &u.Units, &u.Put, &u.Get, &u.Head, &u.List, &u.Delete, &u.Up, &u.Down, &u.Stored}
}

func (u *Usage) check() error {
	if s := u.ByteSeconds; math.IsNaN(s) || math.IsInf(s, 0) || s < 0 || math.Signbit(s) {
		return fmt.Errorf("usage of %v byte seconds", s)
	}
	return nil
}

func appendUsage(b []byte, u *Usage) []byte {
	for _, c := range u.counters() {
		b = binary.AppendUvarint(b, *c)
	}
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(u.ByteSeconds))
}

func (c *cursor) usage() *Usage {
	u := new(Usage)
	for _, f := range u.counters() {
		*f = c.uvarint()
	}
	u.ByteSeconds = math.Float64frombits(c.u64())
	return u
}

// Add makes the counters of u those of a plus b, but Stored and Expires, which become b's. Begin, Opens and ByteSeconds stay.
func (u *Usage) Add(a, b *Usage) {
	u.Commits, u.Units = a.Commits+b.Commits, a.Units+b.Units
	u.Put, u.Get, u.Head, u.List, u.Delete = a.Put+b.Put, a.Get+b.Get, a.Head+b.Head, a.List+b.List, a.Delete+b.Delete
	u.Up, u.Down, u.Stored, u.Expires = a.Up+b.Up, a.Down+b.Down, b.Stored, b.Expires
}
