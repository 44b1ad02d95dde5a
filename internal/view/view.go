// Package view is the JSON in which databases, points, rows, instances, keys and usage are told: one form for the command line's --json and the server's answers.
package view

import (
	"encoding/json"
	"time"

	"github.com/tonbo-go/tonbo"
)

// Stamp is a time, null when there is none.
type Stamp time.Time

// MarshalJSON writes RFC 3339 in UTC.
func (s Stamp) MarshalJSON() ([]byte, error) {
	if time.Time(s).IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(time.Time(s).UTC())
}

// UnmarshalJSON is MarshalJSON's inverse.
func (s *Stamp) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, (*time.Time)(s)) }

// String is for people: - when there is none.
func (s Stamp) String() string {
	if time.Time(s).IsZero() {
		return "-"
	}
	return time.Time(s).UTC().Format(time.RFC3339)
}

// Point is a [tonbo.Point].
type Point struct {
	Point      string `json:"point"` // behind name@point:
	ID         string `json:"id"`
	Slot       uint64 `json:"slot"`
	Generation uint64 `json:"generation"`
	Time       Stamp  `json:"time"`
	Label      string `json:"label"`
}

// PointOf tells of a point.
func PointOf(p tonbo.Point) Point {
	return Point{p.String(), p.ID, p.Slot, p.Generation, Stamp(p.Time), p.Label}
}

// Entry is a [tonbo.HistoryEntry].
type Entry struct {
	Point
	Kind      string `json:"kind"`
	By        string `json:"by"`
	Pages     int64  `json:"pages"`
	Bytes     int64  `json:"bytes"`
	RewoundTo uint64 `json:"rewound_to,omitempty"`
}

// EntryOf tells of an entry of a history.
func EntryOf(h tonbo.HistoryEntry) Entry {
	return Entry{PointOf(h.Point), h.Kind, h.By, h.Pages, h.Bytes, h.RewoundTo}
}

// Database is a [tonbo.Database]. Listed ones have no head and no bytes.
type Database struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	State      string            `json:"state"`
	CreatedAt  Stamp             `json:"created_at"`
	CreatedBy  string            `json:"created_by"`
	ExpiresAt  Stamp             `json:"expires_at"`
	Metadata   map[string]string `json:"metadata"`
	Protected  bool              `json:"protected"`
	Frozen     bool              `json:"frozen"`
	ParentName string            `json:"parent_name,omitempty"`
	Parent     *Parent           `json:"parent,omitempty"`
	Head       *Point            `json:"head,omitempty"`
	Bytes      *int64            `json:"bytes,omitempty"`
	Replayed   bool              `json:"replayed,omitempty"` // made by an earlier request with the same idempotency key
}

// Parent is the point that a fork began from.
type Parent struct {
	ID   string `json:"id"`
	Slot uint64 `json:"slot"`
}

// DatabaseOf tells of a database.
func DatabaseOf(d *tonbo.Database) Database {
	v := Database{
		Name: d.Name, ID: d.ID, State: d.State, CreatedAt: Stamp(d.CreatedAt), CreatedBy: d.CreatedBy, ExpiresAt: Stamp(d.ExpiresAt), Metadata: d.Metadata, Protected: d.Protected, Frozen: d.Frozen, ParentName: d.ParentName,
		Replayed: d.Replayed,
	}
	if v.Metadata == nil {
		v.Metadata = map[string]string{}
	}
	if d.Parent != nil {
		v.Parent = &Parent{d.Parent.ID, d.Parent.Slot}
	}
	if d.Head.Slot != 0 {
		head, bytes := PointOf(d.Head), d.Bytes
		v.Head, v.Bytes = &head, &bytes
	}
	return v
}

// Usage is a [tonbo.Usage].
type Usage struct {
	Name            string   `json:"name"` // "": the account
	Databases       int      `json:"databases"`
	Creates         int64    `json:"creates"`
	Opens           int64    `json:"opens"`
	Commits         int64    `json:"commits"`
	WriteUnits      int64    `json:"write_units"`
	BytesShipped    int64    `json:"bytes_shipped"`
	BytesFetched    int64    `json:"bytes_fetched"`
	Requests        Requests `json:"requests"`
	StoredBytes     int64    `json:"stored_bytes"`
	StorageByteDays float64  `json:"storage_byte_days"`
}

// Requests are numbers of requests to the store.
type Requests struct {
	Put    int64 `json:"put"`
	Get    int64 `json:"get"`
	Head   int64 `json:"head"`
	List   int64 `json:"list"`
	Delete int64 `json:"delete"`
}

// UsageOf tells of what was used.
func UsageOf(u *tonbo.Usage) Usage {
	return Usage{
		u.Name, u.Databases, u.Creates, u.Opens, u.Commits, u.WriteUnits, u.BytesShipped, u.BytesFetched,
		Requests{u.Requests.Put, u.Requests.Get, u.Requests.Head, u.Requests.List, u.Requests.Delete}, u.StoredBytes, u.StorageByteDays,
	}
}
