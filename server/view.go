package server

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/spelling"
	"github.com/tonbo-go/tonbo/internal/view"
	"github.com/tonbo-go/tonbo/server/internal/access"
)

// What answers are made of beside package view, and what bodies are read into.

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
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Secret    string     `json:"secret,omitempty"` // when it is made or rotated, and never again
	Role      string     `json:"role"`
	Identity  identity   `json:"identity"`
	Narrowed  bool       `json:"narrowed"`
	Databases []string   `json:"databases"`
	Prefixes  []string   `json:"database_prefixes"`
	ReadOnly  bool       `json:"read_only"`
	State     string     `json:"state"`
	CreatedAt view.Stamp `json:"created_at"`
	CreatedBy string     `json:"created_by"`
	RotatedAt view.Stamp `json:"rotated_at"`
	ExpiresAt view.Stamp `json:"expires_at"`
}

type identity struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
}

func viewKey(k *access.Key, secret string) keyView {
	v := keyView{
		ID: k.ID, Name: k.Name, Secret: secret, Role: string(k.Role), Identity: identity(k.Identity), Narrowed: k.Narrow, Databases: k.Databases, Prefixes: k.Prefixes, ReadOnly: k.ReadOnly, State: k.State,
		CreatedAt: view.Stamp(k.CreatedAt), CreatedBy: k.CreatedBy, RotatedAt: view.Stamp(k.RotatedAt), ExpiresAt: view.Stamp(k.ExpiresAt),
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
