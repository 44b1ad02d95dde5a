package view

import (
	"encoding/json"

	"github.com/tonbo-go/tonbo"
)

// Rewound tells of a rewind: the point that was the head.
type Rewound struct {
	Name   string `json:"name"`
	Before Point  `json:"before"`
}

// Labelled tells of a point that was given a label.
type Labelled struct {
	Name  string `json:"name"`
	Point Point  `json:"point"`
}

// Rows are what a query read. Values are spelled as in a change set: see [tonbo.ChangeSet].
type Rows struct {
	Columns   []string        `json:"columns"`
	Rows      json.RawMessage `json:"rows"`
	Truncated bool            `json:"truncated"`      // there were more
	Note      string          `json:"note,omitempty"` // why there are not all
}

// Instance is a [tonbo.Instance].
type Instance struct {
	Key        string        `json:"key"`
	Name       string        `json:"name"`
	DatabaseID string        `json:"database_id"`
	Generation uint64        `json:"generation"`
	Version    string        `json:"version,omitempty"` // only of one that was opened
	Started    tonbo.Started `json:"started,omitempty"` // only of one that was ensured
}

// InstanceOf tells of an instance.
func InstanceOf(in *tonbo.Instance) Instance {
	return Instance{in.Key, in.Name, in.DatabaseID, in.Generation, in.Version, in.Started}
}

// Key is a [tonbo.APIKey].
type Key struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Secret    string   `json:"secret,omitempty"` // when it is made or rotated, and never again
	Role      string   `json:"role"`
	Identity  Identity `json:"identity"`
	Narrowed  bool     `json:"narrowed"`
	Databases []string `json:"databases"`
	Prefixes  []string `json:"database_prefixes"`
	ReadOnly  bool     `json:"read_only"`
	State     string   `json:"state"`
	CreatedAt Stamp    `json:"created_at"`
	CreatedBy string   `json:"created_by"`
	RotatedAt Stamp    `json:"rotated_at"`
	ExpiresAt Stamp    `json:"expires_at"`
}

// Identity is whom a key acts as.
type Identity struct {
	ID   string `json:"id"`
	Kind string `json:"kind"` // "user" or "agent"
}

// KeyOf tells of a key.
func KeyOf(k *tonbo.APIKey) Key {
	kind := "user"
	if k.Agent {
		kind = "agent"
	}
	return Key{
		k.ID, k.Name, k.Secret, k.Role, Identity{k.Identity, kind}, k.Narrowed, append([]string{}, k.Databases...), append([]string{}, k.Prefixes...), k.ReadOnly, k.State,
		Stamp(k.CreatedAt), k.CreatedBy, Stamp(k.RotatedAt), Stamp(k.ExpiresAt),
	}
}
