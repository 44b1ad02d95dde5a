package access

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// Role is what an identity may do in the account.
type Role string

// Roles, the widest first. Each may do what the next one may.
const (
	Owner  Role = "owner"  // makes keys of every role
	Admin  Role = "admin"  // makes agents and their keys, and revokes and lists the keys of all but owners
	Member Role = "member" // creates and deletes databases, makes keys for itself
)

// rank orders roles; 0: there is no such role.
func (r Role) rank() int {
	switch r {
	case Owner:
		return 3
	case Admin:
		return 2
	case Member:
		return 1
	}
	return 0
}

// Valid tells whether there is such a role.
func (r Role) Valid() bool { return r.rank() > 0 }

// AtLeast tells whether r may do what other may.
func (r Role) AtLeast(other Role) bool { return r.rank() >= other.rank() && other.Valid() }

// Kinds of identities.
const (
	User  = "user"
	Agent = "agent" // a program of the account: its first key is made by an owner or admin
)

// Identity is who a key acts as. Keys that it makes for itself act as the same one.
type Identity struct {
	ID   string `json:"id"`
	Kind string `json:"kind"` // User or Agent
}

// Key is what a secret stands for.
type Key struct {
	ID       string
	Name     string // what people call it
	Identity Identity
	Role     Role
	// Databases and Prefixes narrow the key: it reaches the databases with these names, and those whose names begin with one of these prefixes, whether they exist yet or not. Neither: it reaches all.
	Databases []string
	Prefixes  []string
	// Narrow tells that the key is narrowed. It stays so when every database that it names has ended, and then it reaches nothing.
	Narrow    bool
	ReadOnly  bool
	ExpiresAt time.Time // zero: never
	CreatedAt time.Time
	CreatedBy string    // the key that made it; "": the account's first
	RotatedAt time.Time // zero: never
	State     string    // of a listing: StateActive, StateExpired or StateRevoked
}

// Narrowed tells whether the key reaches some names only. Such a key never creates or deletes a database, and makes no keys.
func (k *Key) Narrowed() bool { return k.Narrow }

// Reaches tells whether the key reaches the database, or instance key, of that name. It asks nobody.
func (k *Key) Reaches(name string) bool {
	if !k.Narrow {
		return true
	}
	if slices.Contains(k.Databases, name) {
		return true
	}
	return slices.ContainsFunc(k.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Action is what a request does to a database, or to the account.
type Action int

// Actions. Those on a name come first.
const (
	ReadDatabase   Action = iota // get, history, export, query, usage, the database of an instance key
	ReadObjects                  // data plane: get, head, list
	WriteObjects                 // data plane: put
	Label                        // checkpoint: it takes the database over
	ManageDatabase               // create, update, delete, fork, rewind; bind, ensure, update, replace and release of an instance key
	ListDatabases                // those that the key reaches
	ReadAccount                  // usage of the account
	ListKeys                     // of the key's own identity, or of all
	MakeKeys                     // make, rotate, revoke: Covers decides about the one
)

// writes tells whether a read-only key may not do it.
func (a Action) writes() bool {
	switch a {
	case WriteObjects, Label, ManageDatabase, MakeKeys:
		return true
	}
	return false
}

// unnarrowed tells whether it takes a key that is not narrowed.
func (a Action) unnarrowed() bool {
	switch a {
	case ManageDatabase, ReadAccount, ListKeys, MakeKeys:
		return true
	}
	return false
}

// Errors of May and Covers.
var (
	ErrOutOfReach = errors.New("the key does not reach it") // must look as if it did not exist
	ErrNarrowed   = errors.New("a narrowed key may not do that")
	ErrReadOnly   = errors.New("a read-only key may not do that")
	ErrRole       = errors.New("the key's role may not do that")
	ErrWider      = errors.New("a key is never wider than the one that makes it")
)

// May tells whether the key may do a with the database, or instance key, of that name; "": with the account. Nil: it may. [ErrOutOfReach] comes before all others.
func (k *Key) May(a Action, name string) error {
	switch {
	case name != "" && !k.Reaches(name):
		return ErrOutOfReach
	case k.Narrow && a.unnarrowed():
		return ErrNarrowed
	case k.ReadOnly && a.writes():
		return ErrReadOnly
	}
	return nil
}

// Covers tells whether all that other may do, now and later, k may do as well: nil, or [ErrNarrowed], [ErrReadOnly] (such keys make none), [ErrRole], or [ErrWider]. It is what makes a key that k makes, or whose
// secret k is told, no wider than k.
func (k *Key) Covers(other *Key) error {
	switch {
	case k.Narrow:
		return ErrNarrowed
	case k.ReadOnly:
		return ErrReadOnly
	case !k.Role.AtLeast(other.Role):
		return ErrRole
	case k.Identity != other.Identity && !k.Role.AtLeast(Admin):
		return ErrRole
	case !k.ExpiresAt.IsZero() && (other.ExpiresAt.IsZero() || other.ExpiresAt.After(k.ExpiresAt)):
		return ErrWider
	}
	return nil
}

// MayEnd tells whether k may revoke other: one of its own identity or, for an owner or admin, of any, and none of a wider role.
func (k *Key) MayEnd(other *Key) error {
	switch {
	case k.Narrow:
		return ErrNarrowed
	case k.ReadOnly:
		return ErrReadOnly
	case !k.Role.AtLeast(other.Role), !k.Sees(other):
		return ErrRole
	}
	return nil
}

// Sees tells whether k may know that other exists.
func (k *Key) Sees(other *Key) bool {
	return k.Identity == other.Identity || k.Role.AtLeast(Admin)
}
