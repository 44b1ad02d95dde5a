package sqltool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/sqltool"
)

func TestValuesKeepTheirTypes(t *testing.T) {
	tool := newTool(t, database(t), sqltool.Limits{CellBytes: 8})
	for sql, want := range map[string]string{
		`NULL`:                                `null`,
		`1`:                                   `1`,
		`9007199254740991`:                    `9007199254740991`,
		`9007199254740992`:                    `{"integer":"9007199254740992"}`,
		`-9223372036854775808`:                `{"integer":"-9223372036854775808"}`,
		`1.0`:                                 `1.0`,
		`-0.0`:                                `-0.0`,
		`0.1`:                                 `0.1`,
		`1e300`:                               `1e+300`,
		`9007199254740993.0`:                  `9.007199254740992e+15`,
		`9e999`:                               `{"real":"Infinity"}`,
		`-9e999`:                              `{"real":"-Infinity"}`,
		`9e999 - 9e999`:                       `null`,
		`'a"b' || char(10)`:                   `"a\"b\n"`,
		`'<é>'`:                               `"<é>"`,
		`''`:                                  `""`,
		`'true'`:                              `"true"`,
		`'2026-01-02T03:04:05Z'`:              `{"text":"2026-01-","bytes":20}`,
		`'1234567é'`:                          `{"text":"1234567","bytes":9}`,
		`CAST(x'ff41' AS TEXT)`:               `{"text_hex":"ff41"}`,
		`CAST(x'ff4141414141414141' AS TEXT)`: `{"text_hex":"ff41414141414141","bytes":9}`,
		`x''`:                                 `{"blob":""}`,
		`x'00ff'`:                             `{"blob":"00ff"}`,
		`zeroblob(20)`:                        `{"blob":"0000000000000000","bytes":20}`,
	} {
		out, err := call(tool, `SELECT `+sql+` AS x`)
		if want := `{"columns":["x"],"rows":[[` + want + `]]}`; err != nil || out != want || !json.Valid([]byte(out)) {
			t.Errorf("%s: got %s (%v), want %s", sql, out, err, want)
		}
	}
}

func TestRowsAndBytesAreBounded(t *testing.T) {
	db := database(t, `CREATE TABLE t(a)`)
	tool := newTool(t, db, sqltool.Limits{})
	var r struct {
		Rows      [][]any
		Truncated bool
		Changes   int
	}
	get := func(sql string) int {
		t.Helper()
		out, err := call(tool, sql)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		r.Rows, r.Truncated, r.Changes = nil, false, 0
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		return len(out)
	}
	if get(`SELECT value FROM generate_series(1, 200)`); len(r.Rows) != 200 || r.Truncated {
		t.Errorf("200 rows: got %d, truncated %v", len(r.Rows), r.Truncated)
	}
	if get(`SELECT value FROM generate_series(1, 1e15)`); len(r.Rows) != 200 || !r.Truncated {
		t.Errorf("many rows: got %d, truncated %v", len(r.Rows), r.Truncated)
	}
	if n := get(`SELECT hex(zeroblob(2000)) FROM generate_series(1, 1000)`); len(r.Rows) == 0 || len(r.Rows) >= 200 || !r.Truncated || n > 64<<10+1024 {
		t.Errorf("wide rows: got %d in %d bytes, truncated %v", len(r.Rows), n, r.Truncated)
	}
	if n := get(`SELECT ` + strings.Repeat(`hex(zeroblob(2000)), `, 40) + `1`); len(r.Rows) != 0 || !r.Truncated || n > 64<<10 {
		t.Errorf("a row that is too long: got %d in %d bytes, truncated %v", len(r.Rows), n, r.Truncated)
	}
	// What returns is written whole.
	if get(`INSERT INTO t SELECT value FROM generate_series(1, 1000) RETURNING a`); len(r.Rows) != 200 || !r.Truncated || r.Changes != 1000 {
		t.Errorf("RETURNING: got %d rows, truncated %v, %d changes", len(r.Rows), r.Truncated, r.Changes)
	}
	var n int
	if err := db.QueryRow(`SELECT count(*) FROM t`).Scan(&n); err != nil || n != 1000 {
		t.Errorf("%d rows were inserted, %v", n, err)
	}
}

func TestErrorsTellWhatWhereAndWhatMayHaveBeenMeant(t *testing.T) {
	tool := newTool(t, database(t, `CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT UNIQUE)`, `INSERT INTO users VALUES(1, 'a', 'a@b')`, `CREATE TABLE orders(id, user_id REFERENCES users)`, `CREATE TABLE _tonbo_meta(key, value)`,
		`CREATE VIRTUAL TABLE notes USING fts5(body)`), sqltool.Limits{})
	for _, test := range []struct {
		sql  string
		want sqltool.Error
	}{
		{`SELECT nmae FROM users`, sqltool.Error{Message: "no such column: nmae", Near: "nmae FROM users", Line: 1, Column: 8, Hint: "did you mean users.name?"}},
		{"SELECT id\nFROM users u\nWHERE u.mail = 'x'", sqltool.Error{Message: "no such column: u.mail", Near: "u.mail = 'x'", Line: 3, Column: 7, Hint: "did you mean users.email?"}},
		{`SELECT * FROM user`, sqltool.Error{Message: "no such table: user", Hint: "did you mean users?"}},
		{`SELECT * FROM customers`, sqltool.Error{Message: "no such table: customers", Hint: "the tables are notes, orders, users"}},
		{`INSERT INTO users(nam) VALUES('x')`, sqltool.Error{Message: "table users has no column named nam", Hint: "did you mean users.name?"}},
		{`SELECT lenght(name) FROM users`, sqltool.Error{Message: "no such function: lenght", Near: "lenght(name) FROM users", Line: 1, Column: 8, Hint: "did you mean length?"}},
		{`SELEC 1`, sqltool.Error{Message: `near "SELEC": syntax error`, Near: "SELEC 1", Line: 1, Column: 1}},
		{`SHOW TABLES`, sqltool.Error{Message: `near "SHOW": syntax error`, Near: "SHOW TABLES", Line: 1, Column: 1, Hint: "this is SQLite: SELECT name, sql FROM sqlite_schema"}},
		{`SELECT * FROM information_schema.tables`, sqltool.Error{Message: "no such table: information_schema.tables", Hint: "this is SQLite: the tables are in sqlite_schema, the columns of one in pragma_table_info('name')"}},
		{`INSERT INTO users VALUES(2, NULL, 'x')`, sqltool.Error{Message: "NOT NULL constraint failed: users.name"}},
		{`INSERT INTO users VALUES(2, 'b', 'a@b')`, sqltool.Error{Message: "UNIQUE constraint failed: users.email"}},
		{`INSERT INTO orders VALUES(1, 99)`, sqltool.Error{Message: "FOREIGN KEY constraint failed"}},
		{`ATTACH 'x' AS y`, sqltool.Error{Message: "ATTACH, DETACH and VACUUM are not available"}},
		{`PRAGMA journal_mode`, sqltool.Error{Message: "PRAGMA journal_mode is not available"}},
		{`CREATE INDEX i ON users(name); ALTER TABLE users DROP COLUMN name`, sqltool.Error{Message: "one statement a call: the input has more"}},
		{`ALTER TABLE users DROP COLUMN email`, sqltool.Error{Message: `cannot drop UNIQUE column: "email"`}},
	} {
		_, err := call(tool, test.sql)
		var got *sqltool.Error
		if !errors.As(err, &got) || *got != test.want {
			t.Errorf("%s\n got %+v\nwant %+v (%v)", test.sql, got, test.want, err)
		}
	}
}

// https://sqlite.org/lang_altertable.html: the error is at a place in a text of SQLite's own.
func TestAlterTableThatBreaksAnIndexIsExplained(t *testing.T) {
	tool := newTool(t, database(t, `CREATE TABLE t(a, b)`, `CREATE INDEX i ON t(b, a)`), sqltool.Limits{})
	out, err := call(tool, `ALTER TABLE t DROP COLUMN b`)
	if err == nil || !strings.Contains(out, "error in index i after drop column") {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestSyncEachAcknowledgesWhatWasWritten(t *testing.T) {
	db := database(t, `CREATE TABLE t(a)`)
	tool := newTool(t, db, sqltool.Limits{SyncEach: true})
	if _, err := call(tool, `INSERT INTO t VALUES(1)`); err != nil {
		t.Fatal(err)
	}
	if s := db.Status(); s.PendingCommits != 0 {
		t.Errorf("%d commits are pending", s.PendingCommits)
	}
}

func TestFencedDatabaseIsTheProgramsErrorAndNotTheModels(t *testing.T) {
	ctx := context.Background()
	for _, each := range []bool{false, true} {
		t.Run(fmt.Sprint("SyncEach=", each), func(t *testing.T) {
			db, taken := takenOver(t)
			tool := newTool(t, db, sqltool.Limits{SyncEach: each})
			if _, err := call(tool, `INSERT INTO t VALUES(1)`); err != nil {
				t.Fatal(err)
			}
			taken()
			if !each {
				db.Synced(ctx) // it learns
			}
			out, err := call(tool, `INSERT INTO t VALUES(2)`)
			var e *sqltool.Error
			if !errors.Is(err, tonbo.ErrFenced) || errors.As(err, &e) {
				t.Errorf("got %v, want ErrFenced", err)
			}
			for _, secret := range []string{"run-42", "generation", "host", "/", "sqlite"} {
				if strings.Contains(out, secret) {
					t.Errorf("the model is told %q: %s", secret, out)
				}
			}
			if err := db.Reopen(ctx); err != nil {
				t.Fatal(err)
			}
			if out, err := call(tool, `SELECT count(*) FROM t`); err != nil {
				t.Errorf("after Reopen: %s, %v", out, err)
			}
		})
	}
}
