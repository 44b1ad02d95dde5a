package sqltool_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/sqltool"
)

// FuzzCall: whatever a model writes, the answer is JSON, the error is the model's, and tonbo's tables stay what they were.
func FuzzCall(f *testing.F) {
	for _, sql := range bypasses {
		if len(sql) < 1000 {
			f.Add([]byte(input(sql)))
		}
	}
	f.Add([]byte(`{"sql":"SELECT 1","database":"other"}`))
	db := database(f, `CREATE TABLE t(a, b)`, `CREATE TABLE _tonbo_meta(key, value)`, `INSERT INTO _tonbo_meta VALUES('k', 'hidden')`)
	tools := map[bool]*sqltool.Tool{}
	for _, multi := range []bool{false, true} {
		tools[multi] = newTool(f, db, sqltool.Limits{Multi: multi, Time: 100 * time.Millisecond, Memory: 8 << 20})
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, tool := range tools {
			out, err := tool.Call(context.Background(), json.RawMessage(in))
			var e *sqltool.Error
			if !json.Valid(out) || err != nil && !errors.As(err, &e) {
				t.Fatalf("got %s, %v", out, err)
			}
			var v string
			if err := db.QueryRow(`SELECT value FROM _tonbo_meta WHERE key = 'k'`).Scan(&v); err != nil || v != "hidden" {
				t.Fatalf("got %q, %v", v, err)
			}
		}
	})
}
