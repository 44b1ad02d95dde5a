package sqltool_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/sqltool"
)

// BenchmarkRunaway tells by how much hostile statements pass their time limit of half a second, and on Linux how much memory the process took for one.
func BenchmarkRunaway(b *testing.B) {
	const limit = 500 * time.Millisecond
	db := hostileDatabase(b)
	for _, h := range hostile {
		b.Run(h.name, func(b *testing.B) {
			tool := newTool(b, db, sqltool.Limits{Time: limit})
			var over time.Duration
			peak := int64(0)
			for b.Loop() {
				tool.Close()
				debug.FreeOSMemory()
				os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // VmHWM starts again: proc_pid_clear_refs(5)
				before, start := resident("VmRSS:"), time.Now()
				call(tool, h.sql)
				over = max(over, time.Since(start)-limit)
				peak = max(peak, resident("VmHWM:")-before)
			}
			b.ReportMetric(over.Seconds()*1e3, "ms-over")
			b.ReportMetric(float64(peak)/1024, "MiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// resident is a line of /proc/self/status, in KiB; 0 where there is none.
func resident(line string) (n int64) {
	status, _ := os.ReadFile("/proc/self/status")
	for l := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(l, line); ok {
			fmt.Sscan(rest, &n)
		}
	}
	return n
}

// BenchmarkCall compares a call with the same query through database/sql and its rows as JSON.
func BenchmarkCall(b *testing.B) {
	ctx := context.Background()
	db := database(b, `CREATE TABLE t(a INTEGER PRIMARY KEY, b, c)`, `INSERT INTO t SELECT value, hex(randomblob(20)), value * 1.5 FROM generate_series(1, 20000)`)
	tool := newTool(b, db, sqltool.Limits{Rows: 1000, Bytes: 1 << 20})
	for _, q := range []struct{ name, sql string }{
		{"point", `SELECT a, b, c FROM t WHERE a = 77`},
		{"200 rows", `SELECT a, b, c FROM t LIMIT 200`},
		{"scan", `SELECT count(*), sum(c), max(b) FROM t`},
		{"like", `SELECT count(*) FROM t WHERE b LIKE '%FFFF%'`},
		{"update", `UPDATE t SET c = c + 1 WHERE a < 100`},
	} {
		b.Run(q.name+"/tool", func(b *testing.B) {
			for b.Loop() {
				if out, err := tool.Call(ctx, input(q.sql)); err != nil {
					b.Fatal(string(out))
				}
			}
		})
		b.Run(q.name+"/plain", func(b *testing.B) {
			for b.Loop() {
				var in struct{ SQL string }
				if err := json.Unmarshal(input(q.sql), &in); err != nil {
					b.Fatal(err)
				}
				rows, err := db.QueryContext(ctx, in.SQL)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := json.Marshal(all(b, rows)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func all(b *testing.B, rows *sql.Rows) (all [][]any) {
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		b.Fatal(err)
	}
	for rows.Next() {
		row, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			b.Fatal(err)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
	return all
}
