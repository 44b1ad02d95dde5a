package changeset

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// A change of the schema makes what it says it makes: its statements follow from the rest of it, which is what a person is shown. A set that came from elsewhere is held to that.

func dropStatement(typ, name string) string {
	return "DROP " + strings.ToUpper(typ) + " " + ident(name)
}

func rebuildStatement(name string) string {
	return fmt.Sprintf("INSERT INTO %s(%s) VALUES('rebuild')", ident(name), ident(name))
}

func settingStatement(table, name, value string) string {
	return fmt.Sprintf("INSERT INTO %s(%s, rank) VALUES(%s, %s)", ident(table), ident(table), quote(name), value)
}

func pragmaStatement(name, value string) string { return "PRAGMA " + name + " = " + value }

// pragmas that a set may carry.
var pragmas = []string{"user_version", "application_id"}

// literals are what the function literal spells.
var literals = regexp.MustCompile(`^(NULL|-?[0-9]+|\(-9223372036854775807-1\)|-?[0-9]+\.[0-9]+|-?[0-9]+(\.[0-9]+)?e[+-]?[0-9]+|\(-?[0-9]+/1\.0([*/][0-9]+)*\)|'([^'\x00]|'')*'|x'([0-9a-f]{2})*'|CAST\(x'([0-9a-f]{2})*' AS TEXT\))$`)

// check tells what cannot be right about a change that was read.
func (sc *SchemaChange) check() error {
	types := map[Op][]string{Drop: {"table", "index", "view", "trigger"}, Create: {"table", "index", "view", "trigger"}, Alter: {"table"}, Rebuild: {"table"}, Setting: {"pragma", "fts5"}}
	switch want := types[sc.Op]; {
	case want == nil:
		return fmt.Errorf("op %q: want drop, create, alter, rebuild or set", sc.Op)
	case !slices.Contains(want, sc.Type):
		return fmt.Errorf("type %q: want one of %q", sc.Type, want)
	case sc.Name == "" || strings.ContainsRune(sc.Name+sc.Table, 0):
		return errors.New("a name that is empty, or has a NUL")
	case sc.Op != Setting && (sc.Before != "") != (sc.Op == Drop || sc.Op == Alter) || (sc.After != "") != (sc.Op == Create || sc.Op == Alter || sc.Op == Setting):
		return errors.New("before and after do not fit the op")
	case sc.Type == "fts5" && sc.Table == "":
		return errors.New("of no table")
	}
	return nil
}

// derive is the statements that make what the change says, or why there are none.
func (sc *SchemaChange) derive() ([]string, error) {
	if err := sc.check(); err != nil {
		return nil, err
	}
	switch sc.Op {
	case Drop:
		return []string{dropStatement(sc.Type, sc.Name)}, nil
	case Create:
		return []string{sc.After}, creates(sc.Type, sc.Name, sc.After)
	case Alter:
		for _, sql := range []string{sc.Before, sc.After} {
			if err := creates("table", sc.Name, sql); err != nil {
				return nil, err
			}
		}
		a := addedColumns(sc.Name, sc.Before, sc.After)
		if a == nil {
			return nil, errors.New("no columns make one definition of the other")
		}
		return a.statements, nil
	case Rebuild:
		return []string{rebuildStatement(sc.Name)}, nil
	}
	if sc.Type == "pragma" {
		if _, err := strconv.ParseInt(sc.After, 10, 32); err != nil || !slices.Contains(pragmas, sc.Name) {
			return nil, fmt.Errorf("%q: want one of %q, and an integer of 32 bits", sc.After, pragmas)
		}
		return []string{pragmaStatement(sc.Name, sc.After)}, nil
	}
	if _, ok := settingDefaults[sc.Name]; !ok || !literals.MatchString(sc.After) { // others are commands, such as delete-all
		return nil, fmt.Errorf("%.100q: want a setting of FTS5, and a literal", sc.After)
	}
	return []string{settingStatement(sc.Table, sc.Name, sc.After)}, nil
}

// check tells what cannot be right about a set that was read.
func (s *Set) check() error {
	for i := range s.Schema {
		sc := &s.Schema[i]
		if err := sc.check(); err != nil {
			return fmt.Errorf("change set: %s of %s %s: %w", sc.Op, sc.Type, sc.Name, err)
		}
	}
	for i := range s.Tables {
		t := &s.Tables[i]
		if t.Omitted != nil {
			return fmt.Errorf("change set: table %s: %w: rows were left out (Options.Keep). Compare without", t.Name, ErrTooLarge)
		}
		if err := t.check(); err != nil {
			return fmt.Errorf("change set: table %s: %w", t.Name, err)
		}
		for k := range t.Rows {
			if err := t.Rows[k].check(len(t.Columns), t.Key != nil); err != nil {
				return fmt.Errorf("change set: table %s, row %d: %w", t.Name, k, err)
			}
		}
	}
	return nil
}

// verify makes sure that what is going to be run is what the set shows, before anything is.
func (s *Set) verify() error {
	if err := s.check(); err != nil {
		return err
	}
	for i := range s.Schema {
		sc := &s.Schema[i]
		want, err := sc.derive()
		if err == nil && !slices.Equal(want, sc.Statements) {
			err = fmt.Errorf("its statements %.300q are not what it shows: want %.300q. Compare anew", sc.Statements, want)
		}
		if err != nil {
			return fmt.Errorf("change set: %s of %s %s: %w", sc.Op, sc.Type, sc.Name, err)
		}
	}
	if len(s.Triggers) > 0 && len(s.Tables) == 0 {
		return errors.New("change set: triggers of no table")
	}
	for _, t := range s.Triggers {
		if err := creates("trigger", t.Name, t.SQL); err != nil {
			return fmt.Errorf("change set: trigger %s: %w", t.Name, err)
		}
	}
	return nil
}

// guarded lets do run SQL that came with a set: nothing but main is reached, and the transaction stays. The connection's own authorizer cannot be asked for, and is lost.
// https://sqlite.org/c3ref/set_authorizer.html
func guarded(c *sqlite3.Conn, do func() error) (err error) {
	if err := c.SetAuthorizer(authorize); err != nil {
		return err
	}
	defer func() { // also when do panics
		if rerr := c.SetAuthorizer(nil); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}()
	return do()
}

// authorize is the rule. Some SQL is run within a statement: FTS5 and R-Tree read data_version and page_size, ALTER TABLE ADD COLUMN runs quick_check. https://sqlite.org/c3ref/c_alter_table.html
func authorize(action sqlite3.AuthorizerActionCode, third, fourth, schema, _ string) sqlite3.AuthorizerReturnCode {
	ok := schema == "" || schema == "main"
	switch action {
	case sqlite3.AUTH_ATTACH, sqlite3.AUTH_DETACH, sqlite3.AUTH_TRANSACTION, sqlite3.AUTH_SAVEPOINT,
		sqlite3.AUTH_CREATE_TEMP_INDEX, sqlite3.AUTH_CREATE_TEMP_TABLE, sqlite3.AUTH_CREATE_TEMP_TRIGGER, sqlite3.AUTH_CREATE_TEMP_VIEW,
		sqlite3.AUTH_DROP_TEMP_INDEX, sqlite3.AUTH_DROP_TEMP_TABLE, sqlite3.AUTH_DROP_TEMP_TRIGGER, sqlite3.AUTH_DROP_TEMP_VIEW:
		ok = false
	case sqlite3.AUTH_PRAGMA:
		ok = ok && (slices.Contains(pragmas, third) || third == "quick_check" || fourth == "" && (third == "data_version" || third == "page_size"))
	case sqlite3.AUTH_ALTER_TABLE:
		ok = third == "main"
	case sqlite3.AUTH_FUNCTION:
		ok = !strings.EqualFold(fourth, "load_extension")
	}
	if !ok {
		return sqlite3.AUTH_DENY
	}
	return sqlite3.AUTH_OK
}

// runOne runs SQL that is one statement.
func runOne(c *sqlite3.Conn, q string) error {
	st, tail, err := c.Prepare(q)
	if err != nil {
		return err
	}
	if st == nil {
		return errors.New("it is no statement")
	}
	defer st.Close()
	if more, err := tokens(tail); err != nil || len(more) > 0 {
		return fmt.Errorf("it is more than one statement: %.100q", tail)
	}
	return st.Exec()
}
