package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"
	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo"
)

func (a *app) query() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "query NAME[@POINT] SQL",
		Short: "Run one SELECT on a database, as of a point",
		Long: `Run one statement that only reads on a database, as of a point. It takes nothing over: an owner may be at work, and what it has not shipped is not seen. Pages are fetched as they are read.

With --json the answer is {"columns": [...], "rows": [[...], ...], "truncated": false}. Values are spelled as in tonbo diff --json: an integer beyond 2^53 is {"integer": "..."}, a blob {"blob": "<base64>"}.`,
		Example:           `  tonbo query run-42@step-7 "select count(*) from steps"`,
		Args:              exactly(2),
		ValidArgsFunction: a.names(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usagef("--limit %d: want a number from 0 on", limit)
			}
			name, at, err := parseNameAt(args[0])
			if err != nil {
				return err
			}
			a.subject = name
			o, err := a.options()
			if err != nil {
				return err
			}
			o.At, o.Progress = at, nil
			db, err := tonbo.OpenReadOnly(cmd.Context(), name, o)
			if err != nil {
				return err
			}
			var to rowWriter = &textRows{w: a.stdout}
			if a.json {
				to = &jsonRows{w: a.stdout}
			}
			truncated, err := query(cmd.Context(), db, args[1], limit, to)
			if err = errors.Join(err, db.Close()); err != nil {
				return err
			}
			if truncated && !a.json {
				fmt.Fprintf(a.stderr, "tonbo: there are more rows than --limit %d; 0 shows all\n", limit)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 1000, "at most so many rows; 0: all")
	return cmd
}

// rowWriter writes a query's answer as its rows come.
type rowWriter interface {
	begin(columns []string) error
	row(values []any) error
	end(truncated bool) error
}

// query runs one statement. It works on the SQLite connection itself: database/sql would turn what is declared BOOLEAN or DATETIME into something else than what is stored.
func query(ctx context.Context, db *tonbo.DB, text string, limit int, to rowWriter) (truncated bool, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	err = raw(conn, func(c *sqlite3.Conn) (err error) {
		defer c.SetInterrupt(c.SetInterrupt(ctx))
		// The database itself cannot be written to. Nor are files beside it: ATTACH, and with it VACUUM INTO, would make them.
		err = c.SetAuthorizer(func(action sqlite3.AuthorizerActionCode, _, _, _, _ string) sqlite3.AuthorizerReturnCode {
			if action == sqlite3.AUTH_ATTACH || action == sqlite3.AUTH_DETACH {
				return sqlite3.AUTH_DENY
			}
			return sqlite3.AUTH_OK
		})
		if err != nil {
			return err
		}
		truncated, err = step(c, text, limit, to)
		return err
	})
	return truncated, err
}

// raw runs fn on the SQLite connection, and tells what is behind the errors of its file.
func raw(conn *sql.Conn, fn func(*sqlite3.Conn) error) error {
	return conn.Raw(func(dc any) error {
		c := dc.(interface {
			Raw() *sqlite3.Conn
			Reason(error) error
		})
		return c.Reason(fn(c.Raw()))
	})
}

func step(c *sqlite3.Conn, text string, limit int, to rowWriter) (truncated bool, err error) {
	stmt, tail, err := c.Prepare(text)
	if err != nil {
		return false, fmt.Errorf("query: %w", err)
	}
	if stmt == nil {
		return false, usagef("the SQL is empty")
	}
	defer func() {
		if cerr := stmt.Close(); err == nil { // it repeats the error of the last step
			err = cerr
		}
	}()
	switch {
	case !stmt.ReadOnly():
		return false, usagef("the statement writes, and tonbo query only reads: fork the database, and open the fork")
	case !blank(c, tail):
		return false, usagef("one statement at a time: %.60q follows the first", strings.TrimSpace(tail))
	case stmt.BindCount() > 0:
		return false, usagef("the SQL has %d parameters: write the values into it", stmt.BindCount())
	}
	columns := make([]string, stmt.ColumnCount())
	for i := range columns {
		columns[i] = stmt.ColumnName(i)
	}
	more := stmt.Step()
	if err := stmt.Err(); err != nil { // nothing is written then
		return false, fmt.Errorf("query: %w", err)
	}
	if err := to.begin(columns); err != nil {
		return false, err
	}
	for n := 0; more; n++ {
		if limit > 0 && n == limit {
			truncated = true
			break
		}
		values := make([]any, len(columns))
		for i := range values {
			values[i] = value(stmt, i)
		}
		if err := to.row(values); err != nil {
			return false, err
		}
		more = stmt.Step()
	}
	if err := stmt.Err(); err != nil {
		return false, fmt.Errorf("query: %w", err)
	}
	return truncated, to.end(truncated)
}

// blank tells whether SQL holds no statement: spaces and comments.
func blank(c *sqlite3.Conn, text string) bool {
	for text != "" {
		stmt, tail, err := c.Prepare(text)
		if err != nil {
			return false
		}
		if stmt != nil {
			stmt.Close()
			return false
		}
		if len(tail) >= len(text) {
			return true
		}
		text = tail
	}
	return true
}

// value is what is stored: nil, int64, float64, string or []byte.
func value(s *sqlite3.Stmt, i int) any {
	switch s.ColumnType(i) {
	case sqlite3.INTEGER:
		return s.ColumnInt64(i)
	case sqlite3.FLOAT:
		return s.ColumnFloat(i)
	case sqlite3.TEXT:
		return s.ColumnText(i)
	case sqlite3.BLOB:
		return s.ColumnBlob(i, []byte{})
	}
	return nil
}

// jsonRows writes one JSON document.
type jsonRows struct {
	w io.Writer
	n int
}

func (j *jsonRows) begin(columns []string) error {
	names, err := json.Marshal(columns)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(j.w, `{"columns":%s,"rows":[`, names)
	return err
}

func (j *jsonRows) row(values []any) error {
	spelled := []byte("[]")
	if len(values) > 0 {
		// A row is spelled as in a change set.
		b, err := json.Marshal(tonbo.RowChange{Op: "insert", After: values})
		if err != nil {
			return err
		}
		var row struct {
			After json.RawMessage `json:"after"`
		}
		if err := json.Unmarshal(b, &row); err != nil {
			return err
		}
		spelled = row.After
	}
	comma := ","
	if j.n == 0 {
		comma = ""
	}
	j.n++
	_, err := fmt.Fprintf(j.w, "%s%s", comma, spelled)
	return err
}

func (j *jsonRows) end(truncated bool) error {
	_, err := fmt.Fprintf(j.w, "],\"truncated\":%t}\n", truncated)
	return err
}

// textRows writes a table. Its columns are as wide as what is in a block of rows, so that any number of them can be written.
type textRows struct {
	w   io.Writer
	out interface {
		io.Writer
		Flush() error
	}
	n int
}

const (
	tableBlock = 1000 // rows
	cellWidth  = 200  // bytes of text
	cellBytes  = 16   // bytes of a blob
)

func (t *textRows) begin(columns []string) error {
	t.out = table(t.w)
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = plain(c)
	}
	_, err := fmt.Fprintln(t.out, strings.Join(cells, "\t"))
	return err
}

func (t *textRows) row(values []any) error {
	cells := make([]string, len(values))
	for i, v := range values {
		cells[i] = cell(v)
	}
	if _, err := fmt.Fprintln(t.out, strings.Join(cells, "\t")); err != nil {
		return err
	}
	if t.n++; t.n%tableBlock == 0 {
		return t.out.Flush()
	}
	return nil
}

func (t *textRows) end(bool) error { return t.out.Flush() }

// cell is a value for people: long ones are cut, blobs in hexadecimal, NULL is NULL.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []byte:
		if len(v) > cellBytes {
			return fmt.Sprintf("x'%x...' (%d bytes)", v[:cellBytes], len(v))
		}
		return fmt.Sprintf("x'%x'", v)
	case string:
		s := strings.NewReplacer("\r\n", "⏎", "\n", "⏎", "\r", "⏎", "\t", " ").Replace(v)
		if len(s) > cellWidth {
			cut := cellWidth
			for cut > 0 && !utf8.RuneStart(s[cut]) {
				cut--
			}
			s = fmt.Sprintf("%s... (%d bytes)", s[:cut], len(v))
		}
		return plain(strings.ToValidUTF8(s, "\ufffd"))
	}
	return fmt.Sprint(v)
}
