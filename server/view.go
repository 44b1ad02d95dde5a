package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/spelling"
	"github.com/tonbo-go/tonbo/internal/view"
	"github.com/tonbo-go/tonbo/server/internal/access"
)

// What answers are made of beside package view, and what bodies are read into.

// viewKey tells of a key, with its secret when it was made or rotated just now.
func viewKey(k *access.Key, secret string) view.Key {
	return view.KeyOf(&tonbo.APIKey{
		ID: k.ID, Name: k.Name, Secret: secret, Role: string(k.Role), Identity: k.Identity.ID, Agent: k.Identity.Kind == access.Agent, Narrowed: k.Narrow, Databases: k.Databases, Prefixes: k.Prefixes, ReadOnly: k.ReadOnly,
		State: cmp.Or(k.State, access.StateActive), CreatedAt: k.CreatedAt, CreatedBy: k.CreatedBy, RotatedAt: k.RotatedAt, ExpiresAt: k.ExpiresAt,
	})
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
