package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// asked sends a request to the shell's server, and returns the data of its answer: one document, or those of a list.
func (s *shell) asked(method, path, body string) []any {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+os.Getenv("TONBO_API_KEY"))
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if a.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, a.StatusCode, b)
	}
	var v struct{ Data any }
	decodeExact(s.t, b, &v)
	if list, ok := v.Data.([]any); ok {
		return list
	}
	return []any{v.Data}
}

// decodeExact keeps numbers as they are spelled: 1.0 is no 1.
func decodeExact(t *testing.T, b []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v: %.300s", err, b)
	}
}

// said runs a command with --json, and returns its documents.
func (s *shell) said(args ...string) (all []any) {
	s.t.Helper()
	for line := range strings.Lines(s.ok(append(args, "--json")...)) {
		var v any
		decodeExact(s.t, []byte(line), &v)
		all = append(all, v)
	}
	return all
}

// formOf lists the paths of a document's fields with the types of their values. Names that users choose are no fields.
func formOf(v any) []string {
	found := map[string]bool{}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			found[at+" object"] = true
			for k, of := range v {
				if strings.HasSuffix(at, ".metadata") {
					k = "*"
				}
				walk(at+"."+k, of)
			}
		case []any:
			found[at+" list"] = true
			for _, of := range v {
				walk(at+"[]", of)
			}
		case string:
			found[at+" text"] = true
		case json.Number:
			found[at+" number"] = true
		case bool:
			found[at+" bool"] = true
		case nil:
			found[at+" null"] = true
		}
	}
	walk("", v)
	all := make([]string, 0, len(found))
	for f := range found {
		all = append(all, f)
	}
	slices.Sort(all)
	return all
}

func spelledOut(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestServerAndCommandLineSpellTheSame: whoever reads the one reads the other. What both only look at is equal to the last value; what each of them does has the same fields of the same types.
func TestServerAndCommandLineSpellTheSame(t *testing.T) {
	s := newServerShell(t)
	s.agent()
	db := s.open("run-42")
	if _, err := db.Exec(`CREATE TABLE v(id INTEGER PRIMARY KEY, v ANY);
		INSERT INTO v(v) VALUES (NULL), (1), (-1), (9007199254740991), (9007199254740992), (-9007199254740992), (9007199254740993), (-9223372036854775808),
			(1.0), (2.5e-10), (1e300), (9e999), (-9e999), ('text'), (''), ('"\' || char(10) || '<&>' || char(0x2028)), (CAST(x'ff41' AS TEXT)), (x''), (x'00ff')`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s.ok("database", "update", "run-42", "--ttl", "7d")
	s.ok("fork", "run-42@step-6", "run-43", "--protected")
	s.ok("instance", "adopt", "key-1", "run-42")
	s.ok("api-key", "create", "sandboxes", "--database-prefix", "run-", "--ttl", "1d", "--read-only")
	s.ok("api-key", "create", "first", "--agent", "orchestrator", "--role", "member")

	const sql = "SELECT id, v FROM v ORDER BY id"
	for _, c := range []struct {
		args         []string
		method, path string
		body         string
	}{
		{[]string{"database", "get", "run-42"}, "GET", "/v1/databases/run-42", ""},
		{[]string{"database", "get", "run-43"}, "GET", "/v1/databases/run-43", ""},
		{[]string{"database", "list"}, "GET", "/v1/databases", ""},
		{[]string{"log", "run-42"}, "GET", "/v1/databases/run-42/history", ""},
		{[]string{"log", "run-43"}, "GET", "/v1/databases/run-43/history", ""},
		{[]string{"query", "run-42", sql}, "POST", "/v1/databases/run-42/query", `{"sql":"` + sql + `"}`},
		{[]string{"query", "run-42@step-6", "SELECT * FROM steps"}, "POST", "/v1/databases/run-42/query", `{"sql":"SELECT * FROM steps","at":"step-6"}`},
		{[]string{"query", "run-42", "SELECT 1 AS one WHERE 0"}, "POST", "/v1/databases/run-42/query", `{"sql":"SELECT 1 AS one WHERE 0"}`},
		{[]string{"instance", "get", "key-1"}, "GET", "/v1/instances/key-1", ""},
		{[]string{"api-key", "list"}, "GET", "/v1/api-keys", ""},
	} {
		got, want := s.said(c.args...), s.asked(c.method, c.path, c.body)
		if a, b := spelledOut(t, got), spelledOut(t, want); a != b {
			t.Errorf("tonbo %s:\n%s\n%s %s:\n%s", strings.Join(c.args, " "), a, c.method, c.path, b)
		}
	}
	// Each to a database of its own.
	for _, c := range []struct {
		args         []string
		method, path string
		body         string
	}{
		{[]string{"database", "create", "a", "--metadata", "k=v", "--ttl", "1h"}, "POST", "/v1/databases", `{"name":"b","metadata":{"k":"v"},"ttl":"1h"}`},
		{[]string{"database", "create", "a", "--if-not-exists"}, "GET", "/v1/databases/b", ""},
		{[]string{"database", "update", "a", "--metadata", "k=w"}, "PATCH", "/v1/databases/b", `{"metadata":{"k":"w"}}`},
		{[]string{"database", "freeze", "a"}, "PATCH", "/v1/databases/b", `{"frozen":true}`},
		{[]string{"database", "thaw", "a"}, "PATCH", "/v1/databases/b", `{"frozen":false}`},
		{[]string{"checkpoint", "a", "one"}, "POST", "/v1/databases/b/checkpoints", `{"label":"one"}`},
		{[]string{"fork", "a@one", "a-fork"}, "POST", "/v1/databases/b/fork", `{"name":"b-fork","at":"one"}`},
		{[]string{"rewind", "a@one"}, "POST", "/v1/databases/b/rewind", `{"at":"one"}`},
		{[]string{"log", "a"}, "GET", "/v1/databases/b/history", ""},
		{[]string{"usage"}, "GET", "/v1/usage", ""},
		{[]string{"usage", "a"}, "GET", "/v1/databases/b/usage", ""},
		{[]string{"instance", "ensure", "a-key"}, "POST", "/v1/instances/b-key/ensure", ""},
		{[]string{"instance", "replace", "a-key"}, "POST", "/v1/instances/b-key/replace", ""},
		{[]string{"instance", "adopt", "a-own", "a"}, "PUT", "/v1/instances/b-own/binding", `{"database":"b"}`},
		{[]string{"api-key", "create", "a", "--database", "a"}, "POST", "/v1/api-keys", `{"name":"b","databases":["b"]}`},
		{[]string{"database", "create", "c", "--idempotency-key", "k"}, "POST", "/v1/databases", `{"name":"d"}`},
	} {
		got, want := s.said(c.args...), s.asked(c.method, c.path, c.body)
		a, b := formOf(got), formOf(want)
		if c.args[0] == "instance" && c.args[1] == "ensure" { // the server opens nothing
			a = slices.DeleteFunc(a, func(f string) bool { return strings.Contains(f, ".version ") })
		}
		if !slices.Equal(a, b) {
			t.Errorf("tonbo %s: %s\n%s %s: %s", strings.Join(c.args, " "), spelledOut(t, got), c.method, c.path, spelledOut(t, want))
		}
	}
	var id string
	for _, k := range s.said("api-key", "list") {
		if k := k.(map[string]any); k["name"] == "sandboxes" {
			id = k["id"].(string)
		}
	}
	if a, b := formOf(s.said("api-key", "rotate", id)), formOf(s.asked("POST", "/v1/api-keys/"+id+"/rotate", "")); !slices.Equal(a, b) {
		t.Errorf("rotated: %v\n%v", a, b)
	}
}
