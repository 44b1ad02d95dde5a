package sqltool_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/sqltool"
)

// BenchmarkRunaway tells by how much hostile statements pass their time limit of half a second, and on Linux how much memory the process took for one, and how much processor time after the limit (in steps of 10 ms): that is what it
// passes it by on a machine that has nothing else to do.
func BenchmarkRunaway(b *testing.B) {
	const limit = 500 * time.Millisecond
	db := hostileDatabase(b)
	for _, h := range hostile {
		b.Run(h.name, func(b *testing.B) {
			tool := newTool(b, db, sqltool.Limits{Time: limit})
			var over, busy time.Duration
			peak := int64(0)
			for b.Loop() {
				tool.Close()
				debug.FreeOSMemory()
				os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // VmHWM starts again: proc_pid_clear_refs(5)
				before, start := resident("VmRSS:"), time.Now()
				at := make(chan time.Duration, 1)
				late := time.AfterFunc(limit, func() { at <- processor() })
				call(tool, h.sql)
				over = max(over, time.Since(start)-limit)
				if !late.Stop() {
					busy = max(busy, processor()-<-at)
				}
				peak = max(peak, resident("VmHWM:")-before)
			}
			b.ReportMetric(over.Seconds()*1e3, "ms-over")
			b.ReportMetric(busy.Seconds()*1e3, "cpu-ms-over")
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

// processor is the time that the process has had one; 0 where it is not known.
func processor() time.Duration {
	stat, _ := os.ReadFile("/proc/self/stat") // proc_pid_stat(5): utime and stime, in hundredths
	_, rest, _ := strings.Cut(string(stat), ") ")
	var user, system int64
	if f := strings.Fields(rest); len(f) > 12 {
		fmt.Sscan(f[11], &user)
		fmt.Sscan(f[12], &system)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// BenchmarkCall compares a call with what a program without this package would write: the same statement through database/sql, from the same input to the same JSON. The two take turns, each statement has a text that neither
// has seen, and the median of each is reported: tool-us, plain-us, and %, by which the first is above the second.
func BenchmarkCall(b *testing.B) {
	ctx := context.Background()
	db := database(b, `CREATE TABLE t(a INTEGER PRIMARY KEY, b, c)`, `INSERT INTO t SELECT value, hex(randomblob(20)), value * 1.5 FROM generate_series(1, 20000)`, `CREATE TABLE u(a INTEGER PRIMARY KEY, b, c)`)
	tool := newTool(b, db, sqltool.Limits{Rows: 1000, Bytes: 1 << 20})
	db.SetMaxOpenConns(1) // its connections know the cache as well as the tool's
	for _, q := range []struct {
		name string
		sql  string // %d differs each time
		rows bool
	}{
		{"point", `SELECT a, b, c FROM t WHERE a = %d`, true},
		{"200 rows", `SELECT a, b, c FROM t WHERE a > %d LIMIT 200`, true},
		{"scan", `SELECT count(*), sum(c), max(b) FROM t WHERE a > %d`, true},
		{"like", `SELECT count(*) FROM t WHERE b LIKE '%%FFFF%%' AND a > %d`, true},
		{"insert", `INSERT INTO u(b, c) VALUES('a row that a model writes', %d)`, false},
		{"update", `UPDATE t SET c = c + 1 WHERE a BETWEEN %d AND 100`, false},
	} {
		b.Run(q.name, func(b *testing.B) {
			var took [2][]time.Duration
			for n := 0; b.Loop(); n++ {
				for i := range took {
					i = (i + n) % 2
					in := input(fmt.Sprintf(q.sql, 2*n%100+i))
					start := time.Now()
					if i == 0 {
						if out, err := tool.Call(ctx, in); err != nil {
							b.Fatal(string(out))
						}
					} else {
						plain(b, ctx, db, in, q.rows)
					}
					took[i] = append(took[i], time.Since(start))
				}
			}
			var median [2]float64
			for i, all := range took {
				slices.Sort(all)
				median[i] = float64(all[len(all)/2]) / float64(time.Microsecond)
			}
			b.ReportMetric(median[0], "tool-us")
			b.ReportMetric(median[1], "plain-us")
			b.ReportMetric(100*(median[0]/median[1]-1), "%")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// plain is a tool as one writes it.
func plain(b *testing.B, ctx context.Context, db *tonbo.DB, input json.RawMessage, returns bool) []byte {
	var in struct {
		SQL string `json:"sql"`
	}
	if err := json.Unmarshal(input, &in); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var out struct {
		Columns []string `json:"columns,omitempty"`
		Rows    [][]any  `json:"rows,omitempty"`
		Changes int64    `json:"changes,omitempty"`
	}
	var err error
	if returns {
		var rows *sql.Rows
		if rows, err = db.QueryContext(ctx, in.SQL); err == nil {
			out.Columns, out.Rows = all(b, rows)
		}
	} else {
		var r sql.Result
		if r, err = db.ExecContext(ctx, in.SQL); err == nil {
			out.Changes, err = r.RowsAffected()
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	answer, err := json.Marshal(out)
	if err != nil {
		b.Fatal(err)
	}
	return answer
}

func all(b *testing.B, rows *sql.Rows) (columns []string, all [][]any) {
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
	return columns, all
}
