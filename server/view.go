package server

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/spelling"
	"github.com/tonbo-go/tonbo/server/internal/access"
)

// What answers are made of, and what bodies are read into. The command line's --json has the same fields.

// stamp is a time, null when there is none.
type stamp time.Time

// MarshalJSON writes RFC 3339 in UTC.
func (s stamp) MarshalJSON() ([]byte, error) {
	if time.Time(s).IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(time.Time(s).UTC())
}

type pointView struct {
	Point      string `json:"point"`
	ID         string `json:"id"`
	Slot       uint64 `json:"slot"`
	Generation uint64 `json:"generation"`
	Time       stamp  `json:"time"`
	Label      string `json:"label"`
}

func viewPoint(p tonbo.Point) pointView {
	return pointView{p.String(), p.ID, p.Slot, p.Generation, stamp(p.Time), p.Label}
}

type parentView struct {
	ID   string `json:"id"`
	Slot uint64 `json:"slot"`
}

type databaseView struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	State      string            `json:"state"`
	CreatedAt  stamp             `json:"created_at"`
	CreatedBy  string            `json:"created_by"`
	ExpiresAt  stamp             `json:"expires_at"`
	Metadata   map[string]string `json:"metadata"`
	Protected  bool              `json:"protected"`
	Frozen     bool              `json:"frozen"`
	ParentName string            `json:"parent_name,omitempty"`
	Parent     *parentView       `json:"parent,omitempty"`
	Head       *pointView        `json:"head,omitempty"`  // not in a listing
	Bytes      *int64            `json:"bytes,omitempty"` // likewise
}

func viewDatabase(d *tonbo.Database) databaseView {
	v := databaseView{
		Name: d.Name, ID: d.ID, State: d.State, CreatedAt: stamp(d.CreatedAt), CreatedBy: d.CreatedBy, ExpiresAt: stamp(d.ExpiresAt), Metadata: d.Metadata, Protected: d.Protected, Frozen: d.Frozen, ParentName: d.ParentName,
	}
	if v.Metadata == nil {
		v.Metadata = map[string]string{}
	}
	if d.Parent != nil {
		v.Parent = &parentView{d.Parent.ID, d.Parent.Slot}
	}
	if d.Head.Slot != 0 {
		head := viewPoint(d.Head)
		v.Head, v.Bytes = &head, &d.Bytes
	}
	return v
}

type historyView struct {
	pointView
	Kind      string `json:"kind"`
	By        string `json:"by"`
	Pages     int64  `json:"pages"`
	Bytes     int64  `json:"bytes"`
	RewoundTo uint64 `json:"rewound_to,omitempty"`
}

type instanceView struct {
	Key        string        `json:"key"`
	Name       string        `json:"name"`
	DatabaseID string        `json:"database_id"`
	Generation uint64        `json:"generation"`
	Started    tonbo.Started `json:"started,omitempty"`
}

func viewInstance(in *tonbo.Instance) instanceView {
	return instanceView{in.Key, in.Name, in.DatabaseID, in.Generation, in.Started}
}

type keyView struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Secret    string   `json:"secret,omitempty"` // when it is made or rotated, and never again
	Role      string   `json:"role"`
	Identity  identity `json:"identity"`
	Narrowed  bool     `json:"narrowed"`
	Databases []string `json:"databases"`
	Prefixes  []string `json:"database_prefixes"`
	ReadOnly  bool     `json:"read_only"`
	State     string   `json:"state"`
	CreatedAt stamp    `json:"created_at"`
	CreatedBy string   `json:"created_by"`
	RotatedAt stamp    `json:"rotated_at"`
	ExpiresAt stamp    `json:"expires_at"`
}

type identity struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
}

func viewKey(k *access.Key, secret string) keyView {
	v := keyView{
		ID: k.ID, Name: k.Name, Secret: secret, Role: string(k.Role), Identity: identity(k.Identity), Narrowed: k.Narrow, Databases: k.Databases, Prefixes: k.Prefixes, ReadOnly: k.ReadOnly, State: k.State,
		CreatedAt: stamp(k.CreatedAt), CreatedBy: k.CreatedBy, RotatedAt: stamp(k.RotatedAt), ExpiresAt: stamp(k.ExpiresAt),
	}
	if v.Databases == nil {
		v.Databases = []string{}
	}
	if v.Prefixes == nil {
		v.Prefixes = []string{}
	}
	if v.State == "" {
		v.State = access.StateActive
	}
	return v
}

// optional is a field of which absent and null are different things.
type optional[T any] struct {
	Set   bool
	Value *T // nil: null
}

// UnmarshalJSON is called for null, too.
func (o *optional[T]) UnmarshalJSON(b []byte) error {
	o.Set = true
	return json.Unmarshal(b, &o.Value)
}

// duration is a text as the command line takes it ("1h", "7d"), or a number of seconds.
type duration time.Duration

func (d duration) std() time.Duration { return time.Duration(d) }

// UnmarshalJSON implements [json.Unmarshaler].
func (d *duration) UnmarshalJSON(b []byte) error {
	var seconds float64
	if err := json.Unmarshal(b, &seconds); err == nil {
		if !(seconds > 0 && seconds < 1e9) {
			return fmt.Errorf("ttl %g: want seconds above zero", seconds)
		}
		*d = duration(seconds * float64(time.Second))
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("ttl: want a text such as 15m, 1h or 7d, or seconds")
	}
	v, err := spelling.Duration(s)
	*d = duration(v)
	return err
}
