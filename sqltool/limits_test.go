package sqltool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/sqltool"
)

// hostile statements run away. Each is stopped by one limit or another.
var hostile = []struct{ name, sql string }{
	{"recursion", `WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c`},
	{"series", `SELECT sum(value) FROM generate_series(1, 1e15)`},
	{"sort", `WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x FROM c ORDER BY -x`},
	{"sort of blobs", `WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT randomblob(400000) r FROM c ORDER BY r`},
	{"distinct", `SELECT count(DISTINCT x.b || y.b) FROM t x, t y`},
	{"cross join", `SELECT x.a FROM t x, t y, t z WHERE x.b <> y.b AND z.b > x.b ORDER BY x.b`},
	{"group_concat", `SELECT length(group_concat(x.b)) FROM t x, t y`},
	{"json_group_array", `SELECT length(json_group_array(x.b)) FROM t x, t y`},
	{"hex", `SELECT sum(length(quote(hex(zeroblob(120000 + value % 100))))) FROM generate_series(1, 1e9)`},
	{"like", `SELECT sum(hex(zeroblob(249000 + value % 9)) LIKE '%' || printf('%.*c', 1000, '0') || '1') FROM generate_series(1, 1e9)`},
	{"glob", `SELECT sum(hex(zeroblob(249000 + value % 9)) GLOB '*' || printf('%.*c', 1000, '0') || '1') FROM generate_series(1, 1e9)`},
	{"instr", `SELECT sum(instr(hex(zeroblob(249000 + value % 9)), hex(zeroblob(120000)) || '1')) FROM generate_series(1, 1e9)`},
	{"replace", `SELECT sum(length(replace(hex(zeroblob(249000 + value % 9)), hex(zeroblob(120000)) || '1', ''))) FROM generate_series(1, 1e9)`},
	{"trim", `SELECT sum(length(trim(hex(zeroblob(249000 + value % 9)), '123456789abc0'))) FROM generate_series(1, 1e9)`},
	{"json paths", `SELECT sum(length(json_remove(j` + strings.Repeat(`, '$.k' || (29000 + value % 9)`, 90) + `))) FROM (SELECT json_group_object('k' || value, value) j FROM generate_series(1, 30000)), generate_series(1, 1e9)`},
	{"insert", `INSERT INTO u WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT randomblob(400000) FROM c`},
	{"update", `UPDATE t SET b = hex(zeroblob(200000))`},
	{"create table", `CREATE TABLE w AS SELECT x.a FROM t x, t y`},
	{"create index", `CREATE INDEX big ON t(b, a, b || a)`},
	{"delete", `DELETE FROM t WHERE a IN (SELECT value FROM generate_series(1, 1e12))`},
	{"window", `SELECT sum(length(x)) FROM (SELECT group_concat(b) OVER (ORDER BY a ROWS BETWEEN 1000 PRECEDING AND CURRENT ROW) x FROM t)`},
	{"full-text rebuild", `INSERT INTO f(f) VALUES('rebuild')`},
	{"full-text words", `INSERT INTO f SELECT replace(hex(randomblob(100000)), '0', ' ') FROM generate_series(1, 1e6)`},
	{"full-text prefixes", `SELECT sum(length(highlight(f, 0, hex(zeroblob(20000)), 'b'))) FROM f, t WHERE f MATCH '"0"* OR "a"*'`},
	{"json edits", `SELECT sum(length(json_set(j` + strings.Repeat(`, '$.k29999', 1`, 49) + `))) FROM (SELECT json_group_object('k' || value, value) j FROM generate_series(1, 30000)), generate_series(1, 1e9)`},
	{"json elements", `SELECT sum(length(json_set(j` + strings.Repeat(`, '$[#-1]', 1`, 49) + `))) FROM (SELECT json_group_array(value) j FROM generate_series(1, 50000)), generate_series(1, 1e9)`},
	{"json_each", `SELECT count(*) FROM generate_series(1, 1e6) s, json_each((SELECT json_group_array(value + s.value) FROM generate_series(1, 50000)))`},
	{"json in json", `WITH RECURSIVE c(n, j) AS (SELECT 1, json_array(1) UNION ALL SELECT n + 1, iif(length(j) < 200000, json_array(j, j), '1') FROM c) SELECT max(length(j)) FROM c`},
	{"glob set", `SELECT sum(printf('%.*c', 250000, 'a') || value GLOB '*[' || printf('%.*c', 45000, 'x') || ']b') FROM generate_series(1, 1e9)`},
	{"glob sets", `SELECT sum(printf('%.*c', 250000, 'a') || value GLOB '*' || replace(printf('%.*c', 5000, 'x'), 'x', '[a-c]') || '[z]') FROM generate_series(1, 1e9)`},
	{"like escape", `SELECT sum(printf('%.*c', 250000, 'a') || value LIKE printf('%.*c', 20000, '%a') || 'b' ESCAPE '\') FROM generate_series(1, 1e9)`},
	{"like capitals", `SELECT sum(printf('%.*c', 500000, 'B') || value LIKE '%bx%') FROM generate_series(1, 1e9)`},
	{"printf", `SELECT sum(length(printf('%,.500000f', 1e300 / value)) + length(printf('%.*c', 500000, 'x'))) FROM generate_series(1, 1e9)`},
	{"unistr", `SELECT sum(length(unistr(printf('%.*c', 500000 + value % 9, 'a')))) FROM generate_series(1, 1e9)`},
	{"base64", `SELECT sum(length(base64(zeroblob(300000 + value % 9)))) FROM generate_series(1, 1e9)`},
	{"decimal", `SELECT sum(length(decimal_add('1e400000', '1e-400000')) + value) FROM generate_series(1, 1e9)`},
	{"cast", `SELECT sum(CAST(printf('%.*c', 499999, ' ') || '1' AS INTEGER) + value) FROM generate_series(1, 1e9)`},
	{"wide row", `SELECT ` + strings.Repeat("randomblob(500000), ", 1900) + `1`},
	{"recursive queue", `WITH RECURSIVE c(x, y) AS (SELECT 1, randomblob(400000) UNION ALL SELECT x + 1, randomblob(400000) FROM c, generate_series(1, 3) ORDER BY 1) SELECT count(*) FROM c`},
	{"window of blobs", `SELECT max(length(x)) FROM (SELECT first_value(r) OVER (ORDER BY v ROWS BETWEEN 100000 PRECEDING AND 100000 FOLLOWING) x FROM (SELECT randomblob(500000) r, value v FROM generate_series(1, 1e6)))`},
	{"window exclude", `SELECT sum(x) FROM (SELECT count(*) OVER (ORDER BY a ROWS BETWEEN 50000 PRECEDING AND CURRENT ROW EXCLUDE TIES) x FROM t)`},
	{"compound", `SELECT randomblob(400000) FROM generate_series(1, 1e6) UNION SELECT randomblob(400000) FROM generate_series(1, 1e6)`},
	{"materialized", `WITH c AS MATERIALIZED (SELECT randomblob(400000) r FROM generate_series(1, 1e6)) SELECT count(*) FROM c x, c y`},
	{"in", `SELECT count(*) FROM t WHERE b IN (SELECT randomblob(400000) FROM generate_series(1, 1e6))`},
	{"returning", `INSERT INTO u SELECT randomblob(400000) FROM generate_series(1, 1e6) RETURNING hex(x)`},
	{"pragmas", `SELECT count(*) FROM generate_series(1, 1e9) s, pragma_table_info('t' || s.value)`},
	{"functions", `SELECT count(*) FROM pragma_function_list a, pragma_function_list b, pragma_function_list c`},
}

func hostileDatabase(t testing.TB) *tonbo.DB {
	return database(t, `CREATE TABLE t(a, b)`, `INSERT INTO t SELECT value, hex(randomblob(50)) FROM generate_series(1, 100000)`, `CREATE TABLE u(x)`,
		`CREATE VIRTUAL TABLE f USING fts5(x)`, `INSERT INTO f SELECT b FROM t`)
}

func TestRunawayStatementsAreStoppedAndUndone(t *testing.T) {
	if raced {
		t.Skip("under the race detector the database alone takes half a minute; TestStatementsThatAreOneStepAreStoppedAndUndone and TestCancelledCallLeavesNoTransactionOpen run there")
	}
	db := hostileDatabase(t)
	tool := newTool(t, db, sqltool.Limits{Time: 50 * time.Millisecond, Memory: 16 << 20})
	sum := func() (s string) {
		t.Helper()
		if err := db.QueryRow(`SELECT (SELECT count(*) || ' ' || total(length(b)) FROM t) || ' ' || (SELECT count(*) FROM u) || ' ' || (SELECT count(*) FROM sqlite_schema)`).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := sum()
	for _, h := range hostile {
		out, err := call(tool, h.sql)
		var e *sqltool.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: got %.200s, %v", h.name, out, err)
		}
		if after := sum(); after != before {
			t.Errorf("%s: left %s, was %s (%v)", h.name, after, before, err)
			before = after
		}
	}
	// No transaction is left open.
	if _, err := db.Exec(`INSERT INTO u VALUES(1)`); err != nil {
		t.Error(err)
	}
	if out, err := call(tool, `SELECT count(*) FROM u`); err != nil || out != `{"columns":["count(*)"],"rows":[[1]]}` {
		t.Errorf("the tool after all that: %s, %v", out, err)
	}
}

// SQLite counts, empties and drops a table in one step, without a question whether to go on. On a machine with other work such a step, of some 20 ms, may be over before anybody looks at the clock: then it is done once more.
func TestStatementsThatAreOneStepAreStoppedAndUndone(t *testing.T) {
	const table, rows = `CREATE TABLE IF NOT EXISTS big(a)`, `INSERT INTO big SELECT randomblob(900) FROM generate_series(1, 50000)`
	const tries, quick = 20, time.Second
	db := database(t, table, rows)
	for _, where := range []string{"write-ahead log", "file"} {
		tool := newTool(t, db, sqltool.Limits{Time: time.Millisecond})
		for _, sql := range []string{`SELECT count(*) FROM big`, `DELETE FROM big`, `DROP TABLE big`} {
			for try := 1; ; try++ {
				tool.Close() // without what it has in its cache
				begin := time.Now()
				out, err := call(tool, sql)
				if err == nil && try < tries && time.Since(begin) < quick {
					if !strings.HasPrefix(sql, "SELECT") {
						for _, q := range []string{table, rows} {
							if _, err := db.Exec(q); err != nil {
								t.Fatal(err)
							}
						}
					}
					continue
				}
				if err == nil || !strings.Contains(out, "stopped") {
					t.Errorf("%s, in the %s: %s, %v", sql, where, out, err)
				}
				break
			}
			var n int
			if err := db.QueryRow(`SELECT count(*) FROM big`).Scan(&n); err != nil || n != 50000 {
				t.Fatalf("%s, in the %s: %d rows are left, %v", sql, where, n, err)
			}
		}
		if _, err := db.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
			t.Fatal(err)
		}
	}
	var ok string
	if err := db.QueryRow(`PRAGMA integrity_check`).Scan(&ok); err != nil || ok != "ok" {
		t.Errorf("%s, %v", ok, err)
	}
}

func TestMemoryThatRunsOutIsTheModelsErrorAndLeavesNothingLocked(t *testing.T) {
	db := database(t, `CREATE TABLE t(a)`)
	tool := newTool(t, db, sqltool.Limits{Memory: 8 << 20, ValueBytes: 2 << 20})
	for _, sql := range []string{
		`SELECT length(a || b || c || d || e) FROM (SELECT randomblob(1900000) a, randomblob(1900000) b, randomblob(1900000) c, randomblob(1900000) d, randomblob(1900000) e ORDER BY 1)`,
		`INSERT INTO t SELECT replace(hex(randomblob(900000)), x, 'b') FROM (SELECT value x FROM generate_series(1, 9)) ORDER BY replace(hex(randomblob(900000)), 'a', 'b') || replace(hex(randomblob(900000)), 'a', 'b')`,
	} {
		out, err := call(tool, sql)
		var e *sqltool.Error
		if !errors.As(err, &e) {
			t.Errorf("got %.100s, %v", out, err)
		}
	}
	if _, err := db.Exec(`INSERT INTO t VALUES(1)`); err != nil {
		t.Error(err)
	}
	if out, err := call(tool, `SELECT count(*) FROM t`); err != nil || out != `{"columns":["count(*)"],"rows":[[1]]}` {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestStepsAreBounded(t *testing.T) {
	tool := newTool(t, database(t), sqltool.Limits{Steps: 100_000})
	if out, err := call(tool, `SELECT count(*) FROM generate_series(1, 100)`); err != nil {
		t.Errorf("got %s, %v", out, err)
	}
	if out, err := call(tool, `SELECT count(*) FROM generate_series(1, 1000000)`); err == nil || !strings.Contains(out, "steps") {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestGrowthIsBounded(t *testing.T) {
	tool := newTool(t, database(t, `CREATE TABLE t(a)`), sqltool.Limits{GrowBytes: 1 << 20})
	if out, err := call(tool, `INSERT INTO t SELECT randomblob(10000) FROM generate_series(1, 1000)`); err == nil || !strings.Contains(out, "room") {
		t.Errorf("got %s, %v", out, err)
	}
	for range 3 { // each call may
		if out, err := call(tool, `INSERT INTO t SELECT randomblob(10000) FROM generate_series(1, 80)`); err != nil {
			t.Errorf("got %s, %v", out, err)
		}
	}
}

func TestCancelledCallLeavesNoTransactionOpen(t *testing.T) {
	db := database(t, `CREATE TABLE t(a)`)
	tool := newTool(t, db, sqltool.Limits{Multi: true})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := tool.Call(ctx, input(`BEGIN IMMEDIATE; INSERT INTO t VALUES(1); SELECT count(*) FROM generate_series(1, 1e15)`))
		done <- err
	}()
	for { // until it has the lock
		conn, err := db.Conn(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		conn.ExecContext(context.Background(), `PRAGMA busy_timeout = 0`)
		_, err = conn.ExecContext(context.Background(), `BEGIN IMMEDIATE; ROLLBACK`)
		conn.ExecContext(context.Background(), `PRAGMA busy_timeout = 60000`)
		conn.Close()
		if err != nil {
			break
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if _, err := db.Exec(`INSERT INTO t VALUES(2)`); err != nil {
		t.Error(err)
	}
	if out, err := call(tool, `SELECT group_concat(a) FROM t`); err != nil || !strings.Contains(out, `[["2"]]`) {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestLimitsThatMakeNoSenseAreRefused(t *testing.T) {
	db := database(t)
	for _, l := range []sqltool.Limits{{Rows: -1}, {Time: -1}, {Memory: 1}, {Memory: 2 << 30}, {ValueBytes: 100 << 20}} {
		if _, err := sqltool.New(db, l); !errors.Is(err, tonbo.ErrInvalid) {
			t.Errorf("%+v: got %v", l, err)
		}
	}
}

// Functions that replace SQLite's give what SQLite's give.
func TestReplacedFunctionsAgreeWithSQLite(t *testing.T) {
	db := database(t)
	tool := newTool(t, db, sqltool.Limits{})
	texts := []string{`NULL`, `''`, `'a'`, `'abc'`, `'ABCabc'`, `'aéb€c😀'`, `'é'`, `'%'`, `'a%'`, `'%c'`, `'_b_'`, `'a_c'`, `'%b%'`, `'%%'`, `'a*'`, `'*c'`, `'[a-c]*'`, `'[^a]*'`, `'[]]'`, `'[a'`, `'?b?'`, `'[b-'`, `'a-'`, `'[a-]'`, `x''`, `x'61'`, `x'616263'`, `x'ff'`, `CAST(x'80' AS TEXT)`,
		`CAST(x'c3' AS TEXT)`, `123`, `1.5`, `'  a '`, `'a' || char(0) || 'b'`, `'\%'`, `'aaab'`, `'%aab'`}
	var all []string
	for _, x := range texts {
		for _, y := range texts {
			for _, f := range []string{"instr(%s, %s)", "like(%s, %s)", "%[2]s LIKE %[1]s ESCAPE '\\'", "glob(%s, %s)", "trim(%s, %s)", "ltrim(%s, %s)", "rtrim(%s, %s)", "replace(%s, %s, 'xy')", "replace('abcabc', %s, %s)"} {
				all = append(all, fmt.Sprintf(f, x, y))
			}
		}
	}
	for _, e := range all {
		var want string
		if err := db.QueryRow(`SELECT typeof(v) || ' ' || quote(v) || hex(v) FROM (SELECT ` + e + ` AS v)`).Scan(&want); err != nil {
			want = "error"
		}
		out, err := call(tool, `SELECT typeof(v) || ' ' || quote(v) || hex(v) FROM (SELECT `+e+` AS v)`)
		var r struct{ Rows [][]any }
		json.Unmarshal([]byte(out), &r)
		got := "error"
		if err == nil {
			got = fmt.Sprint(r.Rows[0][0])
		}
		if got != want && !strings.Contains(fmt.Sprint(r.Rows), "text_hex") {
			t.Errorf("%s: got %s, SQLite %s", e, got, want)
		}
	}
}
