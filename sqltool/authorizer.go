package sqltool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// ours begins the names of tonbo's own tables.
const ours = "_tonbo_"

func isOurs(name string) bool {
	return len(name) >= len(ours) && strings.EqualFold(name[:len(ours)], ours)
}

// pragmas that may be asked, and whether with an argument. What they change is nothing, and what they tell is the schema.
// Not table_list: it compiles every view there is, and nothing interrupts that.
// https://sqlite.org/pragma.html
var pragmas = map[string]bool{
	"table_info": true, "table_xinfo": true, "index_list": true, "index_info": true, "index_xinfo": true,
	"foreign_key_list": true, "foreign_key_check": true, "integrity_check": true, "quick_check": true,
	"user_version":   true, // a field of the database's header, the user's; query_only refuses to change it
	"application_id": false, "auto_vacuum": false, "collation_list": false, "data_version": false, "encoding": false, "foreign_keys": false, "freelist_count": false,
	"function_list": false, "page_count": false, "page_size": false, "recursive_triggers": false, "schema_version": false,
}

// modules of virtual tables and table-valued functions that may be read, and whether a table of them may be created.
var modules = map[string]bool{
	"fts5": true, "fts5vocab": true,
	"json_each": false, "json_tree": false, "jsonb_each": false, "jsonb_tree": false, "generate_series": false,
}

// functions of SQLite and of the driver that may be called. Not among them: what loads, logs, or takes more than linear time for arguments of Limits.ValueBytes (decimal_mul, json_patch, regexp).
// https://sqlite.org/lang_corefunc.html
var functions = set(`-> ->> abs acos acosh asin asinh atan atan2 atanh avg base64 bm25 ceil ceiling changes char coalesce concat concat_ws cos cosh count
	cume_dist current_date current_time current_timestamp date datetime decimal decimal_add decimal_cmp decimal_sub decimal_sum degrees dense_rank exp first_value
	floor format fts5_get_locale fts5_insttoken fts5_locale glob group_concat hex highlight if ifnull iif instr json json_array json_array_insert json_array_length
	json_error_position json_extract json_group_array json_group_object json_insert json_object json_pretty json_quote json_remove json_replace json_set
	json_type json_valid jsonb jsonb_array jsonb_array_insert jsonb_extract jsonb_group_array jsonb_group_object jsonb_insert jsonb_object jsonb_remove
	jsonb_replace jsonb_set julianday lag last_insert_rowid last_value lead length like likelihood likely ln log log10 log2 lower ltrim match max min mod nth_value
	ntile nullif octet_length percent_rank pi pow power printf quote radians random randomblob rank replace round row_number rtrim sign sin sinh
	snippet soundex sqlite_version sqrt strftime string_agg substr substring subtype sum tan tanh time timediff total total_changes trim trunc typeof unhex unicode
	unistr unistr_quote unixepoch unlikely upper zeroblob`)

// cheap are the functions that take next to no time whatever their arguments are, or that ask for themselves whether to go on.
var cheap = set(`abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling changes coalesce cos cosh count cume_dist current_date current_time current_timestamp
	date datetime degrees dense_rank exp first_value floor glob if ifnull iif instr julianday lag last_insert_rowid last_value lead length like likelihood likely ln
	log log10 log2 max min mod nth_value ntile nullif octet_length percent_rank pi pow power radians random rank round row_number sign sin sinh sqrt sum tan tanh
	time timediff total total_changes trunc typeof unixepoch unlikely`)

// renames are the functions with which SQLite's ALTER TABLE rewrites the schema; no statement of a user's can call them.
var renames = set(`sqlite_rename_column sqlite_rename_table sqlite_rename_test sqlite_drop_column sqlite_rename_quotefix sqlite_add_constraint sqlite_drop_constraint sqlite_find_constraint sqlite_fail`)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// authorizer decides what a statement may do, when SQLite compiles it. https://sqlite.org/c3ref/set_authorizer.html
type authorizer struct {
	l         Limits
	functions []string        // Limits.Functions, in lower case
	refused   map[string]bool // modules that the connection has and that may not be read
	passing   bool            // our own SQL
	seen
}

// seen is what one statement was seen to do.
type seen struct {
	denied string // the first refusal: why
	schema bool   // it changes the schema in a way that is looked at after it has run
	temp   bool   // it makes something temporary
	heavy  bool   // it calls a function that may take long for one step
}

func newAuthorizer(l Limits, registered []string) *authorizer {
	a := &authorizer{l: l, refused: map[string]bool{}}
	for _, f := range l.Functions {
		a.functions = append(a.functions, strings.ToLower(f))
	}
	for _, m := range registered {
		if _, ok := modules[m]; !ok && !strings.HasPrefix(m, "pragma_") { // each of these asks for its pragma
			a.refused[m] = true
		}
	}
	return a
}

// pass lets our own SQL through until the function that it returns is called.
func (a *authorizer) pass() func() {
	if a == nil {
		return func() {}
	}
	a.passing = true
	return func() { a.passing = false }
}

func (a *authorizer) deny(format string, args ...any) sqlite3.AuthorizerReturnCode {
	if a.denied == "" {
		a.denied = fmt.Sprintf(format, args...)
	}
	return sqlite3.AUTH_DENY
}

const (
	notOurs     = "tables named _tonbo_* are not available"
	noTemporary = "temporary tables, indexes and views would be gone with the call: use ordinary ones"
)

// authorize is the callback. What it does not know, it denies.
func (a *authorizer) authorize(action sqlite3.AuthorizerActionCode, third, fourth, database, _ string) sqlite3.AuthorizerReturnCode {
	if a.passing {
		return sqlite3.AUTH_OK
	}
	switch action {
	case sqlite3.AUTH_SELECT, sqlite3.AUTH_RECURSIVE:
		return sqlite3.AUTH_OK

	case sqlite3.AUTH_READ:
		if isOurs(third) {
			return a.deny(notOurs)
		}
		if a.refused[strings.ToLower(third)] {
			return a.deny("the table-valued function %s is not available", third)
		}
		return sqlite3.AUTH_OK

	case sqlite3.AUTH_INSERT, sqlite3.AUTH_UPDATE, sqlite3.AUTH_DELETE, sqlite3.AUTH_REINDEX:
		if isOurs(third) {
			return a.deny(notOurs)
		}
		return sqlite3.AUTH_OK

	case sqlite3.AUTH_ANALYZE:
		if isOurs(third) {
			return sqlite3.AUTH_IGNORE // skipped: its statistics would show what is in it
		}
		return sqlite3.AUTH_OK

	case sqlite3.AUTH_ALTER_TABLE: // third is the database
		if isOurs(fourth) {
			return a.deny(notOurs)
		}
		a.schema = true
		return sqlite3.AUTH_OK

	case sqlite3.AUTH_CREATE_TABLE, sqlite3.AUTH_CREATE_VIEW, sqlite3.AUTH_CREATE_INDEX,
		sqlite3.AUTH_DROP_TABLE, sqlite3.AUTH_DROP_VIEW, sqlite3.AUTH_DROP_INDEX, sqlite3.AUTH_DROP_TRIGGER, sqlite3.AUTH_DROP_VTABLE,
		sqlite3.AUTH_DROP_TEMP_TABLE, sqlite3.AUTH_DROP_TEMP_INDEX, sqlite3.AUTH_DROP_TEMP_VIEW, sqlite3.AUTH_DROP_TEMP_TRIGGER:
		if isOurs(third) || isOurs(fourth) {
			return a.deny(notOurs)
		}
		a.schema = true
		return sqlite3.AUTH_OK

	case sqlite3.AUTH_CREATE_TRIGGER:
		if isOurs(third) || isOurs(fourth) {
			return a.deny(notOurs)
		}
		if !a.l.Triggers {
			return a.deny("triggers cannot be created")
		}
		a.schema = true
		return sqlite3.AUTH_OK

	case sqlite3.AUTH_CREATE_TEMP_TABLE, sqlite3.AUTH_CREATE_TEMP_INDEX, sqlite3.AUTH_CREATE_TEMP_VIEW:
		if isOurs(third) || isOurs(fourth) {
			return a.deny(notOurs)
		}
		if !a.l.Multi {
			return a.deny(noTemporary)
		}
		a.temp = true
		return sqlite3.AUTH_OK

	case sqlite3.AUTH_CREATE_TEMP_TRIGGER:
		return a.deny("temporary triggers cannot be created")

	case sqlite3.AUTH_CREATE_VTABLE:
		if isOurs(third) {
			return a.deny(notOurs)
		}
		if !modules[strings.ToLower(fourth)] {
			return a.deny("virtual tables of the module %s are not available", fourth)
		}
		if strings.EqualFold(database, "temp") {
			if !a.l.Multi {
				return a.deny(noTemporary)
			}
			a.temp = true
		}
		a.schema = true
		return sqlite3.AUTH_OK

	case sqlite3.AUTH_PRAGMA:
		argument, ok := pragmas[strings.ToLower(third)]
		if !ok {
			return a.deny("PRAGMA %s is not available", third)
		}
		if fourth != "" && !argument {
			return a.deny("PRAGMA %s can be asked, not set", third)
		}
		return sqlite3.AUTH_OK

	case sqlite3.AUTH_FUNCTION:
		if name := strings.ToLower(fourth); !functions[name] && !renames[name] && !slices.Contains(a.functions, name) {
			return a.deny("the function %s is not available", fourth)
		} else if !cheap[name] {
			a.heavy = true
		}
		return sqlite3.AUTH_OK

	case sqlite3.AUTH_TRANSACTION, sqlite3.AUTH_SAVEPOINT:
		if !a.l.Multi {
			return a.deny("transactions over several calls are not available: each statement is a transaction of its own")
		}
		return sqlite3.AUTH_OK

	case sqlite3.AUTH_ATTACH, sqlite3.AUTH_DETACH: // VACUUM is an ATTACH
		return a.deny("ATTACH, DETACH and VACUUM are not available")
	}
	return a.deny("the statement is not available")
}
