package sqltool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/sqltool"
)

// bypasses are ways out of such a tool that were tried on others: each must be refused.
var bypasses = []string{
	// Other files.
	`ATTACH 'other.db' AS o`,
	`ATTACH DATABASE ':memory:' AS o`,
	`/* SELECT */ ATTACH 'file:other.db?mode=rwc' AS o`,
	`DETACH main`,
	`VACUUM`,
	`VACUUM INTO 'copy.db'`,
	`vacuum main into 'copy' || '.db'`,
	`SELECT load_extension('x')`,
	`SELECT readfile('/etc/passwd')`,
	`SELECT writefile('x', 'y')`,
	`SELECT edit('x')`,
	`SELECT fts3_tokenizer('simple')`,
	`SELECT sqlite_log(1, 'x')`,
	`CREATE VIRTUAL TABLE x USING csv(filename='/etc/passwd')`,
	`CREATE VIRTUAL TABLE x USING dbstat(main)`,
	`CREATE VIRTUAL TABLE temp.x USING fts5(a)`,
	`SELECT * FROM dbstat`,
	`SELECT * FROM sqlite_dbpage`,
	`SELECT * FROM fsdir('.')`,
	// Pragmas, in every spelling.
	`PRAGMA journal_mode = DELETE`,
	`PRAGMA "journal_mode" = DELETE`,
	`PRAGMA main.[journal_mode](off)`,
	`pRaGmA/**/writable_schema/**/=/**/1`,
	`PRAGMA writable_schema = RESET`,
	`PRAGMA locking_mode = EXCLUSIVE`,
	`PRAGMA page_size = 512`,
	`PRAGMA temp_store_directory = '/tmp'`,
	`PRAGMA temp_store = 2`,
	`PRAGMA mmap_size = 1000000000`,
	`PRAGMA cache_size = -1000000`,
	`PRAGMA query_only = OFF`,
	`PRAGMA max_page_count = 4294967294`,
	`PRAGMA hard_heap_limit = 0`,
	`PRAGMA soft_heap_limit = 0`,
	`PRAGMA trusted_schema = ON`,
	`PRAGMA foreign_keys = OFF`,
	`PRAGMA ignore_check_constraints = ON`,
	`PRAGMA schema_version = 7`,
	`PRAGMA wal_checkpoint(TRUNCATE)`,
	`PRAGMA incremental_vacuum`,
	`PRAGMA optimize`,
	`PRAGMA database_list`,
	`EXPLAIN PRAGMA journal_mode = DELETE`,
	`SELECT * FROM pragma_database_list`,
	`SELECT * FROM pragma_journal_mode`,
	`SELECT * FROM pragma_wal_checkpoint`,
	`SELECT * FROM pragma_table_list`,
	`WITH p AS (SELECT file FROM pragma_database_list) SELECT * FROM p`,
	`PRAGMA table_list`,
	`PRAGMA compile_options`,
	`PRAGMA module_list`,
	`PRAGMA stats`,
	`PRAGMA data_store_directory = '/tmp'`,
	`PRAGMA recursive_triggers = ON`,
	`PRAGMA encoding = 'UTF-16'`,
	`PRAGMA auto_vacuum = 1`,
	`PRAGMA application_id = 1`,
	`PRAGMA busy_timeout = 0`,
	`PRAGMA secure_delete = ON`,
	`PRAGMA wal_autocheckpoint = 0`,
	`PRAGMA synchronous = OFF`,
	`PRAGMA threads = 8`,
	`PRAGMA case_sensitive_like = ON`,
	`PRAGMA analysis_limit = 1`,
	`PRAGMA shrink_memory`,
	`PRAGMA lock_status`,
	`PRAGMA nonsense`,
	"\ufeffPRAGMA journal_mode = DELETE",
	`EXPLAIN QUERY PLAN SELECT * FROM _tonbo_meta`,
	`EXPLAIN ATTACH 'x' AS y`,
	`SELECT * FROM sqlite_dbpage('main') WHERE pgno = 1`,
	`UPDATE sqlite_dbpage SET data = zeroblob(4096) WHERE pgno = 2`,
	`SELECT * FROM bytecode('SELECT 1')`,
	`SELECT * FROM tables_used('SELECT 1')`,
	`SELECT * FROM sqlite_stmt`,
	`SELECT * FROM sqlite_memstat`,
	`CREATE VIRTUAL TABLE x USING sqlite_stmt`,
	`CREATE VIRTUAL TABLE x USING rtree(id, a, b)`,
	`CREATE VIRTUAL TABLE x USING geopoly(a)`,
	`CREATE VIRTUAL TABLE x USING fts4(a)`,
	`CREATE VIRTUAL TABLE x USING "pragma_journal_mode"`,
	`SELECT fts5(NULL)`,
	`SELECT sqlite_rename_table('main', 't', 'x', 'y', 'z', 'u', 0)`,
	`SELECT sqlite_compileoption_get(1)`,
	`SELECT sqlite_source_id()`,
	`SELECT rtreecheck('t')`,
	`SELECT load_extension('x', 'y')`,
	// The schema itself.
	`UPDATE sqlite_schema SET sql = 'x'`,
	`DELETE FROM sqlite_master`,
	`INSERT INTO sqlite_schema VALUES('table', 'x', 'x', 0, 'CREATE TABLE x(y)')`,
	`UPDATE notes_data SET block = x'00'`,
	`DROP TABLE notes_data`,
	// tonbo's own tables.
	`SELECT * FROM _tonbo_steps`,
	`SELECT count(*) FROM _TONBO_meta`,
	`SELECT (SELECT max(value) FROM "_tonbo_meta")`,
	`WITH x AS (SELECT 1) DELETE FROM _tonbo_steps`,
	`DELETE FROM main._tonbo_steps`,
	`UPDATE _tonbo_meta SET value = 'x'`,
	`INSERT INTO _tonbo_meta VALUES('a', 'b')`,
	`INSERT INTO t SELECT 1, key, value FROM _tonbo_meta`,
	`DROP TABLE _tonbo_meta`,
	`ALTER TABLE _tonbo_meta RENAME TO mine`,
	`ALTER TABLE t RENAME TO _tonbo_mine`,
	`CREATE TABLE _tonbo_mine(a)`,
	`CREATE VIEW _tonbo_view AS SELECT 1`,
	`CREATE INDEX mine ON _tonbo_meta(value)`,
	`CREATE INDEX _tonbo_mine ON t(a)`,
	`CREATE TABLE child(a TEXT REFERENCES _tonbo_meta(key))`,
	`ALTER TABLE t ADD COLUMN d TEXT REFERENCES _tonbo_meta(key)`,
	`CREATE TABLE copy AS SELECT * FROM _tonbo_meta`,
	`CREATE VIRTUAL TABLE _tonbo USING fts5(a)`,
	`CREATE TRIGGER later AFTER INSERT ON _tonbo_steps BEGIN DELETE FROM t; END`,
	`SELECT 1 FROM t JOIN _tonbo_meta`,
	`SELECT * FROM main . "_TONBO_META"`,
	`SELECT * FROM [_tonbo_meta]`,
	"SELECT * FROM `_tonbo_meta`",
	`SELECT 1 WHERE EXISTS (SELECT 1 FROM _tonbo_meta)`,
	`SELECT 1 IN _tonbo_meta`,
	`SELECT 1 ORDER BY (SELECT value FROM _tonbo_meta)`,
	`SELECT 1 LIMIT (SELECT length(value) FROM _tonbo_meta)`,
	`SELECT 1 UNION SELECT value FROM _tonbo_meta`,
	`WITH x AS (SELECT * FROM _tonbo_meta) SELECT * FROM x`,
	`WITH RECURSIVE x(a) AS (SELECT value FROM _tonbo_meta UNION SELECT a FROM x) SELECT * FROM x`,
	`SELECT sum(1) OVER (ORDER BY (SELECT value FROM _tonbo_meta)) FROM t`,
	`UPDATE t SET b = m.value FROM _tonbo_meta m`,
	`UPDATE t SET b = (SELECT value FROM _tonbo_meta) RETURNING b`,
	`DELETE FROM t RETURNING (SELECT value FROM _tonbo_meta)`,
	`INSERT INTO t(a) VALUES(1) ON CONFLICT(a) DO UPDATE SET b = (SELECT value FROM _tonbo_meta)`,
	`REPLACE INTO _tonbo_meta VALUES('k', 'mine')`,
	`DELETE FROM _tonbo_steps WHERE rowid IN (SELECT rowid FROM _tonbo_steps) RETURNING *`,
	`ALTER TABLE _tonbo_meta ADD COLUMN x`,
	`ALTER TABLE _tonbo_meta DROP COLUMN value`,
	`ALTER TABLE _tonbo_meta RENAME COLUMN value TO x`,
	`DROP INDEX sqlite_autoindex__tonbo_meta_1`,
	`CREATE UNIQUE INDEX mine ON _tonbo_steps((1))`,
	`CREATE TABLE child(a, FOREIGN KEY(a) REFERENCES "_TONBO_META"(key) ON DELETE CASCADE)`,
	`CREATE VIRTUAL TABLE _tonbo_vocab USING fts5vocab(notes, row)`,
	`INSERT INTO notes_config VALUES('version', 99)`,
	`DELETE FROM notes_docsize`,
	`ALTER TABLE notes_data RENAME TO x`,
	`CREATE TABLE sqlite_mine(a)`,
	`DROP TABLE sqlite_schema`,
	`CREATE INDEX mine ON sqlite_schema(name)`,
	// What runs later.
	`CREATE TRIGGER later AFTER INSERT ON t BEGIN DELETE FROM _tonbo_steps; END`,
	`CREATE TEMP TRIGGER later AFTER INSERT ON main.t BEGIN DELETE FROM t; END`,
	`CREATE TEMP VIEW t AS SELECT 1`,
	`CREATE TEMP TABLE t(a)`,
	`CREATE TABLE g(a, b AS (load_extension(a)))`,
	`CREATE TABLE g(a CHECK (writefile('x', a)))`,
	`CREATE INDEX g ON t(readfile(b))`,
	// More than one, and more than a call.
	`SELECT 1; DROP TABLE t`,
	`SELECT 1;;; -- comment` + "\n" + ` DROP TABLE t`,
	`; SELECT 1; ATTACH 'x' AS y`,
	`SELECT 1; PRAGMA writable_schema = ON`,
	`BEGIN`, `BEGIN IMMEDIATE`, `COMMIT`, `ROLLBACK`, `END`, `SAVEPOINT a`, `RELEASE a`,
	``, ` ; -- nothing`, "SELECT 1\x00; DROP TABLE t",
	`SELECT ?`, `SELECT :name`,
	// Bombs that are refused when they are made.
	`SELECT randomblob(1e9)`,
	`SELECT zeroblob(1000000000)`,
	`SELECT hex(zeroblob(400000))`,
	`SELECT printf('%*c', 1000000000, 'x')`,
	`SELECT printf('%.1000000000f', 1.0)`,
	`SELECT replace(hex(zeroblob(200000)), '0', '0000000000')`,
	`SELECT group_concat(hex(zeroblob(1000))) FROM generate_series(1, 1000)`,
	`WITH RECURSIVE c(x) AS (SELECT 'xxxxxxxx' UNION ALL SELECT x || x FROM c) SELECT max(length(x)) FROM c`,
	`SELECT json_patch('{}', '{}')`,
	`SELECT decimal_mul('1', '2')`,
	`SELECT 'a' REGEXP 'a'`,
	`SELECT unhex('00', ' ')`,
	`SELECT json('` + strings.Repeat("[", 20000) + `')`,
	`SELECT ` + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000),
	`SELECT 1` + strings.Repeat("+1", 5000),
	`SELECT 1` + strings.Repeat(" UNION ALL SELECT 1", 500),
	`SELECT char(` + strings.Repeat("1,", 500) + `1)`,
	`SELECT '` + strings.Repeat("x", 70000) + `'`,
}

func contained(t *testing.T) *tonbo.DB {
	db := database(t, `CREATE TABLE t(a INTEGER PRIMARY KEY, b, c)`, `INSERT INTO t VALUES(1, 'x', 2)`, `CREATE VIRTUAL TABLE notes USING fts5(body)`,
		`CREATE TABLE _tonbo_meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID`, `INSERT INTO _tonbo_meta VALUES('k', 'hidden')`,
		`CREATE TABLE _tonbo_steps(thread TEXT, id TEXT)`, `INSERT INTO _tonbo_steps VALUES('a', 'b')`)
	return db
}

// state is everything in the database that a refused statement must leave alone.
func state(t *testing.T, db *tonbo.DB) string {
	t.Helper()
	var s string
	err := db.QueryRow(`SELECT (SELECT group_concat(coalesce(sql, name), char(10)) FROM sqlite_schema) || (SELECT group_concat(a || b || c) FROM t) || (SELECT key || value FROM _tonbo_meta)
		|| (SELECT thread || id FROM _tonbo_steps) || (SELECT count(*) FROM notes) || (SELECT user_version FROM pragma_user_version)`).Scan(&s)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryBypassIsRefusedAndChangesNothing(t *testing.T) {
	for name, l := range map[string]sqltool.Limits{"default": {}, "read-only": {ReadOnly: true}} {
		t.Run(name, func(t *testing.T) {
			db := contained(t)
			tool := newTool(t, db, l)
			before := state(t, db)
			for _, sql := range bypasses {
				out, err := call(tool, sql)
				var e *sqltool.Error
				if !errors.As(err, &e) {
					t.Errorf("%.100q: got error %v, want an *Error; %s", sql, err, out)
				}
				if strings.Contains(out, "hidden") || strings.Contains(out, "run-42") || strings.Contains(out, "sqlite3:") || strings.Contains(out, ".go") || strings.Contains(out, t.TempDir()[:8]) {
					t.Errorf("%.100q tells too much: %s", sql, out)
				}
				if after := state(t, db); after != before {
					t.Fatalf("%.100q changed the database:\n%s\nwas\n%s", sql, after, before)
				}
			}
			if out, err := call(tool, `SELECT b FROM t`); err != nil || out != `{"columns":["b"],"rows":[["x"]]}` {
				t.Errorf("the tool after all that: %s, %v", out, err)
			}
		})
	}
}

// In a transaction, and among other statements, what is refused alone is refused too.
func TestBypassesInTransactionsAreRefusedToo(t *testing.T) {
	db := contained(t)
	tool := newTool(t, db, sqltool.Limits{Multi: true})
	before := state(t, db)
	for i, sql := range bypasses {
		if sql = strings.TrimSpace(sql); strings.HasPrefix(sql, ";") || strings.HasPrefix(sql, "SELECT 1;") || len(sql) < 12 || len(sql) > 10000 || strings.HasPrefix(sql, "BEGIN") || strings.HasPrefix(sql, "SAVEPOINT") || strings.Contains(sql, "\x00") ||
			sql == `CREATE TEMP TABLE t(a)` || sql == `CREATE TEMP VIEW t AS SELECT 1` || strings.HasPrefix(sql, `CREATE VIRTUAL TABLE temp.`) {
			continue // refused for what is allowed here
		}
		scripts := []string{"BEGIN; " + sql + "; COMMIT", "SAVEPOINT _tonbo_tool; " + sql + "; RELEASE _tonbo_tool", "CREATE TEMP TABLE x1(a); " + sql}
		if raced {
			scripts = scripts[i%3 : i%3+1]
		}
		for _, script := range scripts {
			out, err := call(tool, script)
			var e *sqltool.Error
			if !errors.As(err, &e) || e.Statement != 2 {
				t.Errorf("%.100q: got error %v; %s", script, err, out)
			}
			if after := state(t, db); after != before {
				t.Fatalf("%.100q changed the database:\n%s\nwas\n%s", script, after, before)
			}
		}
	}
}

// A full-text table takes its content from another one by statements of its own: they are asked about as well.
func TestFullTextTableDoesNotReadTonbosTables(t *testing.T) {
	db := contained(t)
	tool := newTool(t, db, sqltool.Limits{})
	for _, sql := range []string{`CREATE VIRTUAL TABLE x USING fts5(thread, id, content='_tonbo_steps')`, `CREATE VIRTUAL TABLE y USING fts5(thread, id, content=_tonbo_steps, content_rowid=rowid)`,
		`INSERT INTO x(x) VALUES('rebuild')`, `SELECT * FROM x`, `SELECT thread FROM x WHERE rowid = 1`, `SELECT highlight(x, 0, '', '') FROM x`, `INSERT INTO y(y) VALUES('rebuild')`, `SELECT * FROM y`,
		`CREATE VIRTUAL TABLE v USING fts5vocab('x', 'row')`, `SELECT * FROM v`, `SELECT * FROM x WHERE x MATCH 'a'`, `INSERT INTO x(x, rank) VALUES('rank', 'bm25((SELECT value FROM _tonbo_meta))')`} {
		if out, _ := call(tool, sql); strings.Contains(out, `"a"`) || strings.Contains(out, "hidden") {
			t.Errorf("%s: %s", sql, out)
		}
	}
}

// What a model may write, in spellings that a reading of the text would trip over.
func TestOddSpellingsAreWhatTheySay(t *testing.T) {
	db := contained(t)
	tool := newTool(t, db, sqltool.Limits{})
	for _, step := range []struct{ sql, want string }{
		{"\ufeffSELECT 1 AS a", `{"columns":["a"],"rows":[[1]]}`},
		{"SELECT 'a\U0001f600' AS \"é\"", `{"columns":["é"],"rows":[["a😀"]]}`},
		{`SELECT 9223372036854775807 AS a, -9223372036854775808 AS b, 9223372036854775808 AS c, 0x7fffffffffffffff AS d`, `{"columns":["a","b","c","d"],"rows":[[{"integer":"9223372036854775807"},{"integer":"-9223372036854775808"},9.223372036854776e+18,{"integer":"9223372036854775807"}]]}`},
		{`SELECT 'a' || char(0) || 'b' AS a`, `{"columns":["a"],"rows":[["a\u0000b"]]}`},
		{`SELECT CAST(x'c328' AS TEXT) AS a, CAST(x'eda080' AS TEXT) AS b`, `{"columns":["a","b"],"rows":[[{"text_hex":"c328"},{"text_hex":"eda080"}]]}`},
		{`SELECT json('{"a":1}') AS a, jsonb('[1]') AS b, typeof(jsonb('[1]')) AS c`, `{"columns":["a","b","c"],"rows":[["{\"a\":1}",{"blob":"2b1331"},"blob"]]}`},
		{`SELECT ';' AS "a;b" -- ; DROP TABLE t`, `{"columns":["a;b"],"rows":[[";"]]}`},
		{`/* ATTACH */ SELECT 'ATTACH ''x'' AS y; PRAGMA journal_mode' AS a /* unended`, `{"columns":["a"],"rows":[["ATTACH 'x' AS y; PRAGMA journal_mode"]]}`},
		{`WITH _tonbo AS (SELECT 1 AS a) SELECT a FROM _tonbo`, `{"columns":["a"],"rows":[[1]]}`},
		{`EXPLAIN QUERY PLAN SELECT 1`, `{"columns":["id","parent","notused","detail"],"rows":[[1,0,0,"SCAN CONSTANT ROW"]]}`},
		{`VALUES(1), (2)`, `{"columns":["column1"],"rows":[[1],[2]]}`},
		{`SELECT 1 AS "` + "a\nb\x01" + `"`, `{"columns":["a\nb\u0001"],"rows":[[1]]}`},
	} {
		if out, _ := call(tool, step.sql); out != step.want || !json.Valid([]byte(out)) {
			t.Errorf("%q:\n got %s\nwant %s", step.sql, out, step.want)
		}
	}
}

func TestReadOnlyToolWritesNothing(t *testing.T) {
	db := contained(t)
	tool := newTool(t, db, sqltool.Limits{ReadOnly: true, Multi: true})
	before := state(t, db)
	for _, sql := range []string{`DELETE FROM t`, `WITH x AS (SELECT 1) DELETE FROM t`, `INSERT INTO t VALUES(9, 9, 9) RETURNING a`, `REPLACE INTO t VALUES(1, 2, 3)`, `DROP TABLE t`, `CREATE TABLE x(a)`, `ANALYZE`, `REINDEX`,
		`PRAGMA user_version = 3`, `BEGIN; DELETE FROM t; COMMIT`, `BEGIN IMMEDIATE; DROP TABLE t; COMMIT`, `INSERT INTO notes(notes) VALUES('rebuild')`, `ALTER TABLE t RENAME TO x`, `CREATE VIEW v AS SELECT 1`} {
		if out, err := call(tool, sql); err == nil {
			t.Errorf("%s: %s", sql, out)
		}
		if after := state(t, db); after != before {
			t.Fatalf("%s changed the database", sql)
		}
	}
}

func TestDestructiveStatementsOnTheUsersTablesAreAllowed(t *testing.T) {
	db := contained(t)
	tool := newTool(t, db, sqltool.Limits{})
	for _, step := range []struct{ sql, out string }{
		{`INSERT INTO t(b) VALUES('y'), ('z')`, `{"changes":2}`},
		{`WITH x AS (SELECT 2 AS a) DELETE FROM t WHERE a IN x RETURNING a, b`, `{"columns":["a","b"],"rows":[[2,"y"]],"changes":1}`},
		{`UPDATE t SET c = a`, `{"changes":2}`},
		{`ALTER TABLE t ADD COLUMN d`, `{"changes":0}`},
		{`ALTER TABLE t RENAME COLUMN d TO e`, `{"changes":0}`},
		{`ALTER TABLE t DROP COLUMN e`, `{"changes":0}`},
		{`CREATE INDEX tb ON t(b)`, `{"changes":0}`},
		{`CREATE VIEW v AS SELECT b FROM t`, `{"changes":0}`},
		{`SELECT * FROM v ORDER BY 1`, `{"columns":["b"],"rows":[["x"],["z"]]}`},
		{`ANALYZE`, `{"changes":0}`},
		{`REINDEX`, `{"changes":0}`},
		{`PRAGMA user_version = 5`, `{"changes":0}`},
		{`INSERT INTO notes VALUES('hello world')`, `{"changes":1}`},
		{`SELECT body FROM notes WHERE notes MATCH 'wor*'`, `{"columns":["body"],"rows":[["hello world"]]}`},
		{`CREATE VIRTUAL TABLE more USING fts5(a)`, `{"changes":0}`},
		{`SELECT name FROM pragma_table_info('t') WHERE pk`, `{"columns":["name"],"rows":[["a"]]}`},
		{`PRAGMA integrity_check`, `{"columns":["integrity_check"],"rows":[["ok"]],"changes":0}`},
		{`SELECT value FROM json_each('[1,"a"]')`, `{"columns":["value"],"rows":[[1],["a"]]}`},
		{`DELETE FROM t`, `{"changes":2}`},
		{`DROP TABLE t`, `{"changes":0}`},
	} {
		if out, err := call(tool, step.sql); err != nil || strings.Replace(out, `,"changes":0}`, "}", 1) != strings.Replace(step.out, `,"changes":0}`, "}", 1) {
			t.Errorf("%s: got %s (%v), want %s", step.sql, out, err, step.out)
		}
	}
	var stats int
	if err := db.QueryRow(`SELECT count(*) FROM sqlite_stat1 WHERE tbl LIKE '\_tonbo%' ESCAPE '\'`).Scan(&stats); err != nil || stats != 0 {
		t.Errorf("statistics of tonbo's tables: %d, %v", stats, err)
	}
}

func TestTriggersAreCreatedOnlyWhenAllowed(t *testing.T) {
	db := contained(t)
	tool := newTool(t, db, sqltool.Limits{Triggers: true})
	if out, err := call(tool, `CREATE TRIGGER later AFTER INSERT ON t BEGIN UPDATE t SET c = 1; END`); err != nil {
		t.Fatal(out, err)
	}
	if out, err := call(tool, `CREATE TRIGGER ours AFTER INSERT ON _tonbo_steps BEGIN DELETE FROM t; END`); err == nil {
		t.Fatal(out)
	}
}

func TestNothingOfTheToolReachesTheProgramsConnections(t *testing.T) {
	db := contained(t)
	tool := newTool(t, db, sqltool.Limits{Multi: true})
	for _, sql := range []string{`CREATE TEMP TABLE scratch AS SELECT * FROM t; SELECT * FROM scratch`, `SELECT nothing`, `BEGIN; DELETE FROM t`, `PRAGMA writable_schema = ON`} {
		call(tool, sql)
	}
	var n int
	if err := db.QueryRow(`SELECT (SELECT count(*) FROM _tonbo_meta) + (SELECT count(*) FROM t) + (SELECT count(*) FROM temp.sqlite_schema)`).Scan(&n); err != nil || n != 2 {
		t.Errorf("got %d, %v", n, err)
	}
	for _, sql := range []string{`ATTACH ':memory:' AS o`, `CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END`, `SELECT length(zeroblob(10000000))`, `SELECT json_patch('{}', '{}')`} {
		if _, err := db.Exec(sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if out, err := call(tool, `SELECT count(*) FROM scratch`); err == nil {
		t.Error("a temporary table outlives its call: " + out)
	}
}

func TestMultiRunsScriptsAndKeepsNoTransactionOpen(t *testing.T) {
	db := database(t, `CREATE TABLE t(a)`)
	tool := newTool(t, db, sqltool.Limits{Multi: true})
	out, err := call(tool, `BEGIN; INSERT INTO t VALUES(1); SAVEPOINT s; INSERT INTO t VALUES(2); ROLLBACK TO s; COMMIT; SELECT a FROM t -- done`)
	if want := `{"results":[{},{"changes":1},{},{"changes":1},{},{},{"columns":["a"],"rows":[[1]]}]}`; err != nil || out != want {
		t.Errorf("got %s, %v", out, err)
	}
	out, err = call(tool, `INSERT INTO t VALUES(3); BEGIN; INSERT INTO t VALUES(4)`)
	if err == nil || !strings.Contains(out, "rolled back") {
		t.Errorf("got %s, %v", out, err)
	}
	out, err = call(tool, `INSERT INTO t VALUES(5); SELECT x FROM t; INSERT INTO t VALUES(6)`)
	if err == nil || !strings.Contains(out, `"statement":2`) {
		t.Errorf("got %s, %v", out, err)
	}
	if out, err = call(tool, `SELECT group_concat(a) FROM t`); out != `{"results":[{"columns":["group_concat(a)"],"rows":[["1,3,5"]]}]}` {
		t.Errorf("got %s, %v", out, err)
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`INSERT INTO t VALUES(7)`); err != nil {
		t.Error(err)
	}
}

func TestInputHasExactlyOneProperty(t *testing.T) {
	tool := newTool(t, database(t), sqltool.Limits{})
	var s struct {
		Properties           map[string]any
		Required             []string
		AdditionalProperties *bool
	}
	if err := json.Unmarshal(tool.Schema, &s); err != nil || len(s.Properties) != 1 || s.Properties["sql"] == nil || s.AdditionalProperties == nil || *s.AdditionalProperties {
		t.Errorf("schema %s, %v", tool.Schema, err)
	}
	for _, in := range []string{``, `null`, `[]`, `"SELECT 1"`, `{}`, `{"sql":1}`, `{"sql":null}`, `{"sql":["SELECT 1"]}`, `{"SQL":"SELECT 1"}`, `{"sql":"SELECT 1","database":"other"}`, `{"database":"other","sql":"SELECT 1"}`,
		`{"sql":"SELECT 1","sql":"SELECT 2"}`, `{"sql":"SELECT 1"}{}`, `{"sql":"SELECT 1"`, `{"sql":"SELECT 1",}`} {
		out, err := tool.Call(context.Background(), json.RawMessage(in))
		var e *sqltool.Error
		if !errors.As(err, &e) || !json.Valid(out) {
			t.Errorf("%s: got %s, %v", in, out, err)
		}
	}
	if out, err := tool.Call(context.Background(), json.RawMessage(` { "sql" : "SELECT 1" } `)); err != nil || string(out) != `{"columns":["1"],"rows":[[1]]}` {
		t.Errorf("got %s, %v", out, err)
	}
}
