// Package base describes bases: immutable manifests that say in which segments the pages of a state are.
//
// It knows the manifest's form and how runs are merged, and no store: callers move the bytes. docs/format.md has the format.
package base

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// Formats of a manifest. Another one is refused: what a reader leaves out would be missing.
const (
	Format       = 1 // all pages are in the levels
	FormatPacked = 2 // there are packs above them
	FormatUpper  = 3 // there is an upper object, and perhaps packs
)

// Errors of Decode, for errors.Is.
var (
	ErrFormat = errors.New("damaged base manifest")                    // it cannot be right
	ErrNewer  = errors.New("base manifest written by a newer version") // perhaps it is, but of a format that this version does not read
)

// Manifest is a base: where each page is as of Slot.
type Manifest struct {
	Format      int          `json:"format"`
	ID          string       `json:"id"` // incarnation, 32 hexadecimal digits
	Generation  uint64       `json:"generation"`
	Slot        uint64       `json:"slot"`
	Time        time.Time    `json:"time"`
	PageSize    uint32       `json:"page_size"`  // bytes
	PageCount   uint32       `json:"page_count"` // pages of the database
	Checksum    string       `json:"checksum"`   // database checksum, 16 hexadecimal digits
	Levels      [][]Segment  `json:"levels"`     // newest first; the last one is the bottom
	Marks       []Mark       `json:"marks,omitempty"`
	Window      int64        `json:"window,omitempty"` // seconds: how long its owner keeps old points restorable; 0: not known
	Upper       *Upper       `json:"upper,omitempty"`
	UpperObject *UpperObject `json:"upper_object,omitempty"`
	Labels      []Labelled   `json:"labels,omitempty"` // every labelled point of the incarnation up to Slot, oldest first
	Packed      *Packed      `json:"packed,omitempty"`
}

// Named yields the key of each object that the base names.
func (m *Manifest) Named() iter.Seq[string] {
	return func(yield func(string) bool) {
		if m == nil {
			return
		}
		for _, level := range m.Levels {
			for _, s := range level {
				if !yield(s.Key) {
					return
				}
			}
		}
		for _, p := range m.Packs() {
			if !yield(p.Key) {
				return
			}
		}
		if m.UpperObject != nil {
			yield(m.UpperObject.Key)
		}
	}
}

// Labelled is a point that has a label.
type Labelled struct {
	Label string `json:"label"`
	Slot  uint64 `json:"slot"`
}

// Segment is one object of a level.
type Segment struct {
	Key   string `json:"key"`   // full key
	First uint32 `json:"first"` // page numbers, both inclusive
	Last  uint32 `json:"last"`
	Pages int    `json:"pages"`
	From  uint64 `json:"from"` // oldest and newest slot whose pages it holds
	Slot  uint64 `json:"slot"`
	Size  int64  `json:"size"` // bytes of the object
}

// Ref names the segment as entries do.
func (s Segment) Ref() segment.Ref {
	return segment.Ref{Key: s.Key, First: s.First, Last: s.Last, Pages: s.Pages, Size: s.Size}
}

// Mark is a slot and when it was written: owners find the history window's end by it.
type Mark struct {
	Slot uint64    `json:"slot"`
	Time time.Time `json:"time"`
}

// A manifest ends in its own checksum, a last field over all bytes before it.
const (
	sumField = `,"sum":"%016x"}`
	sumSize  = len(`,"sum":"`) + 16 + len(`"}`)
)

// Encode returns the manifest's bytes.
func (m *Manifest) Encode() ([]byte, error) {
	switch m.Format = Format; {
	case m.UpperObject != nil:
		m.Format = FormatUpper
	case m.Packed != nil:
		m.Format = FormatPacked
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-1] // the closing brace
	return fmt.Appendf(b, sumField, xxhash.Sum64(b)), nil
}

// Decode reads and checks a manifest. Errors: ErrFormat, ErrNewer.
func Decode(b []byte) (*Manifest, error) {
	if dense(b) {
		return nil, fmt.Errorf("%w: %d bytes of elements that no manifest has", ErrFormat, len(b))
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if m.Format < Format || m.Format > FormatUpper {
		return nil, fmt.Errorf("%w: format %d, this version reads %d to %d: update tonbo", ErrNewer, m.Format, Format, FormatUpper)
	}
	if n := len(b) - sumSize; n < 0 || string(b[n:]) != fmt.Sprintf(sumField, xxhash.Sum64(b[:n])) {
		return nil, fmt.Errorf("%w: its checksum does not fit", ErrFormat)
	}
	if len(m.ID) != 32 || m.Slot == 0 || m.PageSize < 512 || m.PageSize > 65536 || m.PageSize&(m.PageSize-1) != 0 || m.PageCount == 0 {
		return nil, fmt.Errorf("%w: id %q, slot %d, %d pages of %d bytes", ErrFormat, m.ID, m.Slot, m.PageCount, m.PageSize)
	}
	if _, err := m.Sum(); err != nil {
		return nil, err
	}
	for i, level := range m.Levels {
		var last uint32
		for _, s := range level {
			if s.Key == "" || s.First <= last || s.Last < s.First || s.Pages < 1 || s.Pages > int(s.Last-s.First)+1 || s.Size < 1 || s.From > s.Slot {
				return nil, fmt.Errorf("%w: level %d: segment %+v", ErrFormat, i, s)
			}
			last = s.Last
		}
	}
	if err := m.checkUpper(); err != nil {
		return nil, err
	}
	if err := m.checkPacked(); err != nil {
		return nil, err
	}
	return &m, nil
}

// Sum returns the database checksum.
func (m *Manifest) Sum() (uint64, error) { return parseSum(m.Checksum) }

func parseSum(s string) (uint64, error) {
	var x uint64
	if n, err := fmt.Sscanf(s, "%016x", &x); err != nil || n != 1 || len(s) != 16 {
		return 0, fmt.Errorf("%w: checksum %q", ErrFormat, s)
	}
	return x, nil
}

// SumString spells a database checksum as manifests do.
func SumString(x uint64) string { return fmt.Sprintf("%016x", x) }

// Runs returns the levels above the bottom, newest first.
func (m *Manifest) Runs() [][]Segment {
	if m == nil || len(m.Levels) == 0 {
		return nil
	}
	return m.Levels[:len(m.Levels)-1]
}

// Bottom returns the lowest level.
func (m *Manifest) Bottom() []Segment {
	if m == nil || len(m.Levels) == 0 {
		return nil
	}
	return m.Levels[len(m.Levels)-1]
}

// Pages adds up the pages of a level.
func Pages(level []Segment) int {
	n := 0
	for _, s := range level {
		n += s.Pages
	}
	return n
}
