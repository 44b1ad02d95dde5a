package server_test

import (
	"encoding/base64"
	"strings"
	"testing"
)

// TestValueThatWasCutTellsItsLength: it has another form than a whole one, so that nobody takes it for that.
func TestValueThatWasCutTellsItsLength(t *testing.T) {
	w := newWorld(t)
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-1"}`)
	a := w.want(200, "POST", "/v1/databases/run-1/query", w.owner, `{"sql":"SELECT replace(hex(zeroblob(35000)), '0', 'é'), zeroblob(70000), x'00ff', 'whole'"}`)
	rows, _ := a.field("rows").([]any)
	row, _ := rows[0].([]any)
	if len(rows) != 1 || len(row) != 4 {
		t.Fatalf("%.300s", a.Body)
	}
	for i, c := range []struct {
		field string
		bytes float64
		begin string
	}{{"text", 140000, "éé"}, {"blob", 70000, "\x00\x00"}} {
		v, _ := row[i].(map[string]any)
		spelled, _ := v[c.field].(string)
		b, err := base64.StdEncoding.DecodeString(spelled)
		if err != nil || v["bytes"] != c.bytes || len(b) != 64<<10 || !strings.HasPrefix(string(b), c.begin) {
			t.Errorf("%s: %v bytes, %d of them told: %v", c.field, v["bytes"], len(b), err)
		}
	}
	if v, _ := row[2].(map[string]any); v["blob"] != "AP8=" || len(v) != 1 || row[3] != "whole" {
		t.Errorf("whole values: %v", row[2:])
	}
}
