package changeset

import "errors"

// Errors, for errors.Is.
var (
	ErrUnsupported = errors.New("cannot be compared")
	ErrTooLarge    = errors.New("too many changes")
	ErrConflict    = errors.New("changed on both sides")
)

// Set is what turns one database into another. It is plain data: it can be kept as JSON, which loses nothing, and applied later or elsewhere. It holds SQL: what is run is
// what [Set.WriteText] shows, and nothing else. Apply only what you, or somebody whom you trust, has looked at.
type Set struct {
	From     Side
	To       Side
	Encoding string         // of text: "UTF-8", "UTF-16le" or "UTF-16be"
	Schema   []SchemaChange // in the order in which they are made
	Tables   []TableChange  // with rows that differ, by name
	Triggers []Trigger      // of these tables, the same on both sides: WriteSQL keeps them from firing
}

// Side says what was compared.
type Side struct {
	Name      string `json:"name"`
	Slot      uint64 `json:"slot,omitempty"`      // of the log
	Point     string `json:"point,omitempty"`     // as Point.String spells it
	Unshipped bool   `json:"unshipped,omitempty"` // with commits beyond the point, which the remote did not have yet
}

// Op is what happens to a row or to an object of the schema.
type Op string

// The ops of rows are insert, update and delete; of the schema, the others.
const (
	Insert Op = "insert"
	Update Op = "update"
	Delete Op = "delete"

	Drop    Op = "drop"
	Create  Op = "create"
	Alter   Op = "alter"   // a table gets columns
	Rebuild Op = "rebuild" // of a full-text index, from the table that it is about
	Setting Op = "set"     // of a full-text index, or of the database
)

// SchemaChange is one change of the schema. A table whose definition changed otherwise than by new columns is dropped, and created with all of its rows.
type SchemaChange struct {
	Op     Op     `json:"op"`
	Type   string `json:"type"`            // "table", "index", "view", "trigger"; of a setting "pragma" or "fts5"
	Name   string `json:"name"`            // of a setting: which
	Table  string `json:"table,omitempty"` // that the index, trigger or setting is of
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"` // both: SQL of the object; of a setting, its value as SQL spells it
	// Statements make the change. They follow from the rest of it: others are refused.
	Statements []string `json:"statements"`
}

// TableChange holds the rows of one table that differ. A table that is dropped and created anew is there twice: first with its former columns and rows, then with the new ones.
type TableChange struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`       // without generated ones; of a full-text table, rowid comes first
	Key     []string `json:"key,omitempty"` // primary key, nil: none
	// KeyCollations are the collations by which the key is unique, where they are not the columns' own; nil: they are.
	KeyCollations []string    `json:"key_collations,omitempty"`
	Dropped       bool        `json:"dropped,omitempty"` // the rows go with the table
	Created       bool        `json:"created,omitempty"`
	Unique        bool        `json:"unique,omitempty"` // other columns are unique too: all rows that change are taken out before any is put in
	Rows          []RowChange `json:"rows"`
	// Omitted counts rows that differ and were not kept (Options.Keep), nil: none. A set with any can be looked at; to apply it, write its script or make it JSON is ErrTooLarge.
	Omitted *Omitted `json:"-"`
}

// Omitted counts rows that are not in a set.
type Omitted struct{ Inserted, Updated, Deleted int64 }

func (o *Omitted) add(r *RowChange) {
	switch r.Op {
	case Insert:
		o.Inserted += max(1, r.CopiesAfter-r.CopiesBefore)
	case Update:
		o.Updated++
	case Delete:
		o.Deleted += max(1, r.CopiesBefore-r.CopiesAfter)
	}
}

// RowChange is one row, or of a row without a key all of its copies. Values are nil, int64, float64, string or []byte, in the order of the table's Columns.
type RowChange struct {
	Op     Op
	Before []any // nil for an insert
	After  []any // nil for a delete
	// Copies before and after, of a row that is matched by all of its values; zero for a row with a key.
	CopiesBefore, CopiesAfter int64
}

// Trigger is a trigger that did not change.
type Trigger struct {
	Name string `json:"name"`
	SQL  string `json:"sql"`
}

// keyed tells whether the row is matched by its key.
func (r *RowChange) keyed() bool { return r.CopiesBefore == 0 && r.CopiesAfter == 0 }

// values are those that identify the row.
func (r *RowChange) values() []any {
	if r.Before != nil {
		return r.Before
	}
	return r.After
}

// Empty tells whether both sides are the same.
func (s *Set) Empty() bool { return len(s.Schema) == 0 && len(s.Tables) == 0 }

// Count returns how many rows are inserted, updated and deleted, those of tables that come or go included.
func (s *Set) Count() (inserted, updated, deleted int64) {
	for i := range s.Tables {
		n, u, d := s.Tables[i].Count()
		inserted, updated, deleted = inserted+n, updated+u, deleted+d
	}
	return inserted, updated, deleted
}

// Count returns how many rows are inserted, updated and deleted.
func (t *TableChange) Count() (inserted, updated, deleted int64) {
	var all Omitted
	if t.Omitted != nil {
		all = *t.Omitted
	}
	for i := range t.Rows {
		all.add(&t.Rows[i])
	}
	return all.Inserted, all.Updated, all.Deleted
}
