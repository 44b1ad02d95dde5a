package access

import (
	"fmt"
	"slices"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/spelling"
)

// Spec says which key to make.
type Spec struct {
	Name      string    // 1 to 100 bytes of printable text
	Role      Role      // "": the maker's, or Member for a new Agent or User
	Agent     string    // the key is this agent's: an owner or admin makes it. An agent comes to be with its first key, and is admin or member. "": the key acts as its maker
	User      string    // likewise, a user's
	Databases []string  // narrow it to these, whether they exist or not
	Prefixes  []string  // and to those whose names begin so
	ReadOnly  bool      //
	ExpiresAt time.Time // zero: when the maker does
}

// maxNames is how many names, and how many prefixes, a key has at most. Each name costs two requests when a verdict is made.
const maxNames = 32

// SpecError is a key that cannot be.
type SpecError struct {
	Field  string
	Reason string
}

func (e *SpecError) Error() string { return e.Field + ": " + e.Reason }

// key is the key that maker asks for, without an id.
func (s Spec) key(maker *Key, now time.Time) (*Key, error) {
	if s.Name == "" || len(s.Name) > 100 || !spelling.Printable(s.Name) {
		return nil, &SpecError{"name", "1 to 100 bytes of printable text are wanted"}
	}
	key := &Key{Name: s.Name, Identity: maker.Identity, Role: s.Role, ReadOnly: s.ReadOnly, ExpiresAt: s.ExpiresAt.UTC(), CreatedAt: now.UTC(), CreatedBy: maker.ID}
	if s.Agent != "" && s.User != "" {
		return nil, &SpecError{"agent", "user is set too: set one of them"}
	}
	for kind, id := range map[string]string{Agent: s.Agent, User: s.User} {
		if id == "" {
			continue
		}
		if err := tonbo.ValidateName(id); err != nil {
			return nil, &SpecError{kind, "an identity is called as a database can be: 1 to 200 letters, digits and . _ : @ -"}
		}
		key.Identity = Identity{ID: id, Kind: kind}
		if key.Role == "" {
			key.Role = Member
		}
	}
	if key.Role == "" {
		key.Role = maker.Role
	}
	switch {
	case !key.Role.Valid():
		return nil, &SpecError{"role", "owner, admin or member is wanted"}
	case key.Role == Owner && key.Identity.Kind == Agent:
		return nil, &SpecError{"role", "an agent is admin or member"}
	case len(s.Databases) > maxNames || len(s.Prefixes) > maxNames:
		return nil, &SpecError{"databases", fmt.Sprintf("a key has up to %d names and %d prefixes: use a prefix that they share", maxNames, maxNames)}
	}
	for _, d := range s.Databases {
		if err := tonbo.ValidateName(d); err != nil {
			return nil, &SpecError{"databases", err.Error()}
		}
	}
	for _, p := range s.Prefixes {
		if err := tonbo.ValidateName(p); err != nil { // what a name can be, it can begin with
			return nil, &SpecError{"database_prefixes", fmt.Sprintf("no name begins with %.40q", p)}
		}
	}
	key.Databases, key.Prefixes = unique(s.Databases), unique(s.Prefixes)
	key.Narrow = len(key.Databases)+len(key.Prefixes) > 0
	if s.ExpiresAt.IsZero() {
		key.ExpiresAt = maker.ExpiresAt
	} else if !s.ExpiresAt.After(now) {
		return nil, &SpecError{"expires_at", "it is past"}
	}
	return key, nil
}

func unique(s []string) []string { return slices.Compact(slices.Sorted(slices.Values(s))) }
