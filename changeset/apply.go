package changeset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ncruces/go-sqlite3"
)

// OnConflict says what becomes of a row that the target has changed as well.
type OnConflict int

// What differs in the schema is always a conflict that fails, and so is a row that a constraint does not let in.
const (
	Fail      OnConflict = iota // nothing is changed: a [*ConflictError] lists what is in the way
	Skip                        // the target's row stays
	Overwrite                   // the row becomes what the set says
)

// ApplyOptions of Apply. The zero value fails at a conflict.
type ApplyOptions struct {
	OnConflict   OnConflict
	BeforeCommit func() error // called before COMMIT; its error rolls back
}

// Apply makes the changes to the main database of a connection, in one transaction that it begins (BEGIN IMMEDIATE) and ends. Each row is compared, by type and bits, with what it was: an update or
// delete needs it as it was before, an insert needs that there is none; a row that is as it is to be is done already, so that a set can be applied again. A row without a key
// must be there in as many copies as before, or as after. Objects of the schema are compared by their SQL. Where AUTOINCREMENT has counted further, that stays.
//
// What is run is what [Set.WriteText] shows: a set whose statements are others is refused before anything is. They run one by one under an authorizer of Apply's, which keeps them to the main database, its
// transaction and the settings that a set may have; one that the connection had is gone when Apply returns.
//
// Triggers do not fire: what they did is among the changes; TEMP ones, which cannot be kept from it, are refused. Neither foreign keys nor the tables' ON CONFLICT clauses act; where the connection enforces them, violations that the changes bring about are
// conflicts. Both settings are as before when Apply returns; close the connection if that fails. When it returns an error, nothing was changed, save that an error of
// COMMIT itself may not say so: it is returned as it is.
func (s *Set) Apply(ctx context.Context, c *sqlite3.Conn, o ApplyOptions) (err error) {
	if err := s.verify(); err != nil {
		return err
	}
	old := c.SetInterrupt(ctx)
	defer c.SetInterrupt(old)
	if !c.GetAutocommit() {
		return errors.New("the connection is in a transaction")
	}
	// (1) Nothing but what the set says.
	enforce, err := c.Config(sqlite3.DBCONFIG_ENABLE_FKEY)
	if err != nil {
		return err
	}
	for _, op := range []sqlite3.DBConfig{sqlite3.DBCONFIG_ENABLE_TRIGGER, sqlite3.DBCONFIG_ENABLE_FKEY} {
		was, err := c.Config(op)
		if err != nil {
			return err
		}
		if _, err := c.Config(op, false); err != nil {
			return err
		}
		defer func() {
			if _, rerr := c.Config(op, was); rerr != nil {
				err = errors.Join(err, rerr)
			}
		}()
	}
	if err := query(c, "SELECT name FROM temp.sqlite_schema WHERE type = 'trigger' LIMIT 1", nil, func(st *sqlite3.Stmt) error {
		return fmt.Errorf("trigger %s is TEMP, and would fire: use a connection without", st.ColumnText(0)) // these are not what DBCONFIG_ENABLE_TRIGGER is about
	}); err != nil {
		return err
	}
	// (2) No other writer from here on.
	if err := c.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if !c.GetAutocommit() {
			c.SetInterrupt(context.Background())
			err = errors.Join(err, c.Exec("ROLLBACK"))
		}
	}()
	// (3) It is this transaction that is committed, or none: the savepoint goes with it, whatever ends it.
	if err := c.Exec("SAVEPOINT " + applySavepoint); err != nil {
		return err
	}
	a := &applier{c: c, set: s, o: o, enforce: enforce}
	if err := a.run(); err != nil {
		return err
	}
	if len(a.conflicts) > 0 {
		return &ConflictError{a.conflicts, a.more}
	}
	if o.BeforeCommit != nil {
		if err := o.BeforeCommit(); err != nil {
			return err
		}
	}
	if err := a.stillOpen(); err != nil {
		return err
	}
	if err := c.Exec("RELEASE " + applySavepoint); err != nil {
		return fmt.Errorf("%w: %w", errEnded, err)
	}
	return c.Exec("COMMIT")
}

// applySavepoint is taken when the transaction begins.
const applySavepoint = "tonbo_changeset_apply"

// errEnded: what came before it was rolled back.
var errEnded = errors.New("the transaction was ended by a statement within it")

// stillOpen tells whether statements still are within a transaction: outside of one, each would be committed by itself.
func (a *applier) stillOpen() error {
	if a.c.GetAutocommit() {
		return errEnded
	}
	return nil
}

// applier is an Apply under way.
type applier struct {
	c         *sqlite3.Conn
	set       *Set
	o         ApplyOptions
	enforce   bool
	now       *schema // of the target, before
	conflicts []Conflict
	more      bool
}

func (a *applier) conflict(c Conflict) {
	if a.more = len(a.conflicts) == maxConflicts; !a.more {
		a.conflicts = append(a.conflicts, c)
	}
}

func (a *applier) run() (err error) {
	if a.now, err = readSchema(a.c, "main"); err != nil {
		return err
	}
	broken, err := a.violations()
	if err != nil {
		return err
	}
	// (1) What is in the way is found before anything is done, as far as it is the schema.
	done := make([]bool, len(a.set.Schema))
	for i := range a.set.Schema {
		if done[i], err = a.check(&a.set.Schema[i]); err != nil {
			return err
		}
	}
	for i := range a.set.Tables {
		if t := &a.set.Tables[i]; t.Dropped {
			if err := a.dropped(t); err != nil {
				return fmt.Errorf("table %s: %w", t.Name, err)
			}
		}
	}
	if len(a.conflicts) > 0 {
		return nil
	}
	// (2) What goes, what changes, what comes and is to have rows.
	if err := a.schema(done, func(sc *SchemaChange) bool {
		return sc.Op == Drop || sc.Op == Alter || sc.Op == Create && sc.Type == "table" || sc.Op == Setting && sc.Type == "fts5"
	}); err != nil {
		return err
	}
	// (3) Rows.
	for i := range a.set.Tables {
		if t := &a.set.Tables[i]; !t.Dropped {
			if err := a.table(t); err != nil {
				return fmt.Errorf("table %s: %w", t.Name, err)
			}
		}
	}
	if len(a.conflicts) > 0 {
		return nil
	}
	// (4) What rests on rows.
	if err := a.schema(done, func(sc *SchemaChange) bool {
		return sc.Op == Create && sc.Type != "table" || sc.Op == Rebuild || sc.Op == Setting && sc.Type == "pragma"
	}); err != nil {
		return err
	}
	return a.newViolations(broken)
}

// schema makes those changes that are not done yet.
func (a *applier) schema(done []bool, which func(*SchemaChange) bool) error {
	for i := range a.set.Schema {
		sc := &a.set.Schema[i]
		if done[i] || !which(sc) {
			continue
		}
		if err := a.change(sc); err != nil {
			return fmt.Errorf("%s of %s %s: %w", sc.Op, sc.Type, sc.Name, err)
		}
	}
	return nil
}

// change makes one change, and looks at what became of it.
func (a *applier) change(sc *SchemaChange) error {
	if sc.Op == Rebuild || sc.Type == "fts5" { // an INSERT like any other, were it another table
		now, err := readSchema(a.c, "main")
		if err != nil {
			return err
		}
		name := sc.Table
		if sc.Op == Rebuild {
			name = sc.Name
		}
		if v := now.virtual[fold(name)]; v == nil || v.module != "fts5" || sc.Op == Rebuild && v.kind() != derived {
			return fmt.Errorf("table %s is no full-text index that this can be done to", name)
		}
	}
	if err := guarded(a.c, func() error {
		for _, q := range sc.Statements {
			if err := errors.Join(runOne(a.c, q), a.stillOpen()); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if sc.Op != Create && sc.Op != Alter {
		return nil
	}
	is := ""
	if err := query(a.c, "SELECT sql FROM main.sqlite_schema WHERE type = ? AND name = ?", []any{sc.Type, sc.Name}, func(st *sqlite3.Stmt) error {
		is = st.ColumnText(0)
		return nil
	}); err != nil {
		return err
	}
	if is != sc.After {
		return fmt.Errorf("it became %.300q: want %.300q", is, sc.After)
	}
	return nil
}

// check compares the target with what a change of the schema expects, and tells whether there is nothing to do.
func (a *applier) check(sc *SchemaChange) (done bool, err error) {
	found, has := "", false
	switch {
	case sc.Op == Rebuild:
		return false, nil
	case sc.Type == "pragma":
		has = true
		err = query(a.c, "PRAGMA main."+sc.Name, nil, func(st *sqlite3.Stmt) error { found = st.ColumnText(0); return nil })
	case sc.Type == "fts5":
		if a.now.virtual[fold(sc.Table)] == nil { // created with this set
			return false, nil
		}
		if v := settingDefaults[sc.Name]; v != nil {
			found, has = literal(a.set.Encoding, v), true
		}
		err = query(a.c, "SELECT v FROM "+mainTable(sc.Table+"_config")+" WHERE k = ?", []any{sc.Name}, func(st *sqlite3.Stmt) error {
			found, has = literal(a.set.Encoding, column(st, 0)), true
			return nil
		})
	default:
		var o object
		if o, has = a.now.find(sc.Type, sc.Name); has {
			found = o.sql
		}
	}
	if err != nil {
		return false, err
	}
	before, after := sc.Before, sc.After
	switch sc.Op { // an object that is dropped may be created anew by this set
	case Drop:
		after = a.counterpart(sc, Create)
		if before == after && has { // with its table
			return !a.goes(sc.Table), nil
		}
	case Create:
		before = a.counterpart(sc, Drop)
		if before == after && has {
			return !a.goes(sc.Table), nil
		}
	}
	switch {
	case has && found == after, !has && after == "":
		return true, nil
	case has && found == before, !has && before == "":
		return false, nil
	}
	if sc.Op == Create && before != "" { // its Drop says so
		return false, nil
	}
	text := func(s string) []any {
		if s == "" {
			return nil
		}
		return []any{s}
	}
	a.conflict(Conflict{Table: sc.Name, Type: sc.Type, Op: sc.Op, Columns: []string{"sql"}, Expected: text(before), Found: text(found), Wanted: text(after)})
	return false, nil
}

// counterpart is the SQL of the object that the set drops or creates under the same name, "": it does not.
func (a *applier) counterpart(sc *SchemaChange, op Op) string {
	for _, o := range a.set.Schema {
		if o.Op == op && o.Type == sc.Type && o.Name == sc.Name {
			return o.Before + o.After // one of them is empty
		}
	}
	return ""
}

// goes tells whether a table is still to be dropped, and with it what is attached to it.
func (a *applier) goes(table string) bool {
	for _, sc := range a.set.Schema {
		if sc.Op == Drop && (sc.Type == "table" || sc.Type == "view") && fold(sc.Name) == fold(table) {
			o, has := a.now.find(sc.Type, sc.Name)
			return has && o.sql == sc.Before
		}
	}
	return false
}

// dropped compares all rows of a table that is going to be dropped.
func (a *applier) dropped(t *TableChange) error {
	if !a.goes(t.Name) {
		return nil
	}
	sh, err := a.shapeOf(t)
	if err != nil || sh == nil {
		return err
	}
	left := map[string]int64{}
	for i := range t.Rows {
		left[string(appendExact(nil, t.Rows[i].Before))] += max(1, t.Rows[i].CopiesBefore)
	}
	return a.compareAll(sh, t, left)
}

// compareAll: the table holds just the rows in left.
func (a *applier) compareAll(sh *shape, t *TableChange, left map[string]int64) error {
	other := map[string]bool{}
	err := query(a.c, "SELECT "+sh.list("x")+" FROM "+sh.from()+" x", nil, func(st *sqlite3.Stmt) error {
		row := columns(st, 0, len(sh.columns))
		k := string(appendExact(nil, row))
		if left[k] > 0 {
			left[k]--
			return nil
		}
		if sh.key != nil {
			other[string(appendExact(nil, keyOf(sh, row)))] = true
		}
		a.conflict(Conflict{Table: t.Name, Type: "row", Op: Drop, Columns: t.Columns, Key: keyOf(sh, row), Found: row})
		return nil
	})
	if err != nil {
		return err
	}
	for i := range t.Rows {
		row := t.Rows[i].Before
		if k := string(appendExact(nil, row)); left[k] > 0 && (sh.key == nil || !other[string(appendExact(nil, keyOf(sh, row)))]) {
			left[k] = 0
			a.conflict(Conflict{Table: t.Name, Type: "row", Op: Drop, Columns: t.Columns, Key: keyOf(sh, row), Expected: row})
		}
	}
	return nil
}

// keyOf is the key of a row, nil: it has none.
func keyOf(sh *shape, row []any) []any {
	var key []any
	for _, k := range sh.key {
		if row[k] == nil {
			return nil
		}
		key = append(key, row[k])
	}
	return key
}

// shapeOf describes a table of the target, and compares it with the set's. nil: it is not there, or other than that, which is noted as a conflict.
func (a *applier) shapeOf(t *TableChange) (*shape, error) {
	now, err := readSchema(a.c, "main")
	if err != nil {
		return nil, err
	}
	var sh *shape
	switch v := now.virtual[fold(t.Name)]; {
	case v != nil && v.kind() == stored:
		sh, err = v.shapeIn(a.c, "main")
	case v == nil && now.isA[fold(t.Name)] == "table":
		sh, err = readShape(a.c, "main", t.Name)
	}
	if err != nil {
		return nil, err
	}
	if sh == nil || !slices.Equal(sh.columns, t.Columns) || !slices.Equal(sh.keyNames(), t.Key) {
		c := Conflict{Table: t.Name, Type: "table", Op: Alter, Reason: "it is not there"}
		if sh != nil {
			c.Reason = fmt.Sprintf("it has columns %q with key %q: wanted %q with key %q", sh.columns, sh.keyNames(), t.Columns, t.Key)
		}
		a.conflict(c)
		return nil, nil
	}
	return sh, nil
}
