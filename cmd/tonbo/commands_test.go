package main

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/tonbo-go/tonbo/internal/view"
)

// contains fails unless text holds all of these.
func contains(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, s := range all {
		if !strings.Contains(text, s) {
			t.Errorf("want %q in:\n%s", s, text)
		}
	}
}

func TestDatabasesAreCreatedFoundChangedAndDeleted(t *testing.T) {
	s := newShell(t)
	var d view.Database
	contains(t, s.ok("database", "create", "run-42", "--ttl", "1h", "--metadata", "task=42"), "name      run-42\n", "state     active\n", "metadata  task=42\n", "expires   20")
	s.document(&d, "database", "create", "run-43", "--metadata", "task=43", "--metadata", "kind=a b", "--protected", "--idempotency-key", "k", "--page-size", "8192")
	if d.Name != "run-43" || d.State != "active" || !d.Protected || d.Metadata["kind"] != "a b" || len(d.ID) != 32 || d.Head.Slot != 1 {
		t.Errorf("created %+v", d)
	}
	s.document(&d, "database", "create", "run-43", "--metadata", "task=43", "--metadata", "kind=a b", "--protected", "--idempotency-key", "k", "--page-size", "8192")
	if !d.Replayed {
		t.Errorf("the same key again: %+v", d)
	}
	contains(t, s.ok("database", "create", "run-42", "--if-not-exists"), "metadata  task=42\n")

	contains(t, s.ok("database", "get", "run-43"), "active, protected")
	var raw map[string]any
	s.document(&raw, "database", "get", "run-42")
	if raw["expires_at"] == nil || raw["head"].(map[string]any)["point"] == "" || raw["bytes"].(float64) <= 0 || raw["metadata"].(map[string]any)["task"] != "42" {
		t.Errorf("got %v", raw)
	}
	raw = nil
	s.document(&raw, "database", "get", "run-43")
	if at, there := raw["expires_at"]; !there || at != nil {
		t.Errorf("expires_at of one that never expires: %v", at)
	}

	table := s.ok("database", "list")
	contains(t, table, "NAME    STATE              CREATED", "run-42  active ", "run-43  active, protected")
	if got := s.lines("database", "list", "--metadata", "task=43"); len(got) != 1 || got[0]["name"] != "run-43" {
		t.Errorf("listed %v", got)
	}
	if got := s.lines("db", "list", "--prefix", "run-", "--limit", "1", "--after", "run-42"); len(got) != 1 || got[0]["name"] != "run-43" {
		t.Errorf("listed %v", got)
	}
	if got := s.lines("database", "list", "--older-than", "1d"); got != nil {
		t.Errorf("listed %v", got)
	}

	if got := s.ok("database", "count"); got != "2\n" {
		t.Errorf("counted %q", got)
	}
	var count struct{ Count, Max int }
	s.document(&count, "database", "count", "--metadata", "task=42", "--max", "1")
	if count.Count != 1 || count.Max != 1 {
		t.Errorf("counted %+v", count)
	}

	contains(t, s.ok("database", "update", "run-43", "--protected=false", "--metadata", "kind=b", "--remove-metadata", "task", "--ttl", "7d"), "metadata  kind=b\n", "state     active\n")
	s.document(&d, "database", "update", "run-43", "--expires-at", "never")
	if !time.Time(d.ExpiresAt).IsZero() {
		t.Errorf("updated %+v", d)
	}
	contains(t, s.ok("database", "freeze", "run-43"), "active, frozen")
	d = view.Database{}
	s.document(&d, "database", "thaw", "run-43")
	if d.Frozen {
		t.Errorf("thawed %+v", d)
	}

	contains(t, s.ok("database", "delete", "run-42", "--yes"), "run-42 is deleted")
	var deleted struct {
		Name    string
		Deleted bool
	}
	s.document(&deleted, "database", "delete", "run-43", "-y")
	if !deleted.Deleted || deleted.Name != "run-43" {
		t.Errorf("deleted %+v", deleted)
	}
	if got := s.ok("database", "count"); got != "0\n" {
		t.Errorf("counted %q", got)
	}
}

func TestExportsAndImportsArePlainFiles(t *testing.T) {
	s := newShell(t)
	s.agent()
	dir := t.TempDir()
	file := filepath.Join(dir, "run-42.db")
	contains(t, s.ok("database", "export", "run-42@step-6", file), "run-42.db: 8.0 KiB")
	if n := rowsOf(t, file); n != 1 {
		t.Errorf("%d rows at step-6", n)
	}
	if r := s.run("database", "export", "run-42", file); r.code != exitFailed || !strings.Contains(r.err, "--force") {
		t.Errorf("a file in the way: %+v", r)
	}
	var v struct {
		Name, File string
		Bytes      int64
	}
	s.document(&v, "database", "export", "run-42", file, "--force")
	if n := rowsOf(t, file); n != 2 || v.Bytes != 8192 || v.File != file {
		t.Errorf("%d rows, %+v", n, v)
	}
	image, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out := s.ok("database", "export", "run-42", "-"); out != string(image) {
		t.Errorf("to the standard output: %d bytes, want the %d of the file", len(out), len(image))
	}
	if r := s.run("database", "export", "run-42@never", filepath.Join(dir, "other.db")); r.code != exitNotFound {
		t.Errorf("a point that never was: %+v", r)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}

	contains(t, s.ok("database", "import", "golden", file, "--frozen"), "active, frozen")
	var d view.Database
	s.document(&d, "database", "import", "golden-2", file, "--metadata", "a=b")
	if d.Name != "golden-2" || d.Metadata["a"] != "b" {
		t.Errorf("imported %+v", d)
	}
	contains(t, s.ok("query", "golden-2", "select count(*) from steps"), "2\n")
}

func rowsOf(t *testing.T, file string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.ToSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM steps").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestHistoryIsShownAndGoneBackTo(t *testing.T) {
	s := newShell(t)
	s.agent()
	contains(t, s.ok("log", "run-42"), "SLOT  GENERATION  TIME", "step-6", "step-7", "create", "claim", "commit", "close", "agent")
	log := s.lines("log", "run-42")
	kinds := []string{}
	for _, e := range log {
		kinds = append(kinds, e["kind"].(string)+" "+e["label"].(string))
	}
	if want := []string{"close ", "commit step-7", "commit step-6", "claim ", "create "}; !slices.Equal(kinds, want) {
		t.Errorf("log %q, want %q", kinds, want)
	}
	if e := log[1]; e["slot"].(float64) != 4 || e["by"] != "agent" || e["pages"].(float64) != 2 || e["bytes"].(float64) <= 0 || e["generation"].(float64) != 2 {
		t.Errorf("entry %v", e)
	}
	if got := s.lines("log", "run-42", "--labels", "--limit", "1"); len(got) != 1 || got[0]["label"] != "step-7" {
		t.Errorf("newest label: %v", got)
	}

	// Every spelling of a point.
	for _, at := range []string{"@step-6", "@label:step-6", "@slot:3", "@point:" + log[2]["point"].(string), "@time:" + log[2]["time"].(string)} {
		if out := s.ok("query", "run-42"+at, "select group_concat(id) from steps"); !strings.HasSuffix(out, "\n6\n") {
			t.Errorf("%s: %q", at, out)
		}
	}

	contains(t, s.ok("fork", "run-42@step-6", "attempt-2", "--ttl", "1d", "--metadata", "task=42"), "forked from  run-42@slot:3\n")
	var fork map[string]any
	s.document(&fork, "fork", "run-42", "attempt-3")
	if p := fork["parent"].(map[string]any); fork["parent_name"] != "run-42" || p["slot"].(float64) != 5 || p["id"] != log[0]["id"] {
		t.Errorf("forked %v", fork)
	}

	contains(t, s.ok("rewind", "run-42@step-6"), "run-42 is rewound to step-6; the head was slot 5: tonbo rewind run-42@slot:5 undoes this")
	contains(t, s.ok("query", "run-42", "select group_concat(id) from steps"), "\n6\n")
	var back struct {
		Name   string
		Before view.Point
	}
	s.document(&back, "rewind", "run-42@slot:5")
	contains(t, s.ok("query", "run-42", "select group_concat(id) from steps"), "\n6,7\n")
	contains(t, s.ok("log", "run-42"), "rewind to 3", "rewind to 5")
	if back.Name != "run-42" || back.Before.Slot != 7 {
		t.Errorf("rewound %+v", back)
	}
}

func TestCheckpointLabelsAndFencesOnlyWhenTold(t *testing.T) {
	s := newShell(t)
	s.ok("database", "create", "run-42")
	contains(t, s.ok("checkpoint", "run-42", "begin"), "run-42@begin is slot 3\n")
	var p struct {
		Name  string
		Point view.Point
	}
	s.document(&p, "checkpoint", "run-42", "again")
	if p.Point.Label != "again" || p.Point.Slot == 0 {
		t.Errorf("checkpoint %+v", p)
	}

	db := s.open("run-42")
	defer db.Close()
	r := s.run("checkpoint", "run-42", "busy")
	if r.code != exitConflict || r.out != "" {
		t.Errorf("an owner is at work: %+v", r)
	}
	contains(t, r.err, "agent has it open", "--take-over")
	if err := db.Synced(t.Context()); err != nil {
		t.Errorf("the owner that was left alone: %v", err)
	}
	s.ok("checkpoint", "run-42", "taken", "--take-over")
	if err := db.Synced(t.Context()); err == nil {
		t.Error("the former owner's Synced is nil after a take-over")
	}
}

func TestDiffTellsWhatAStepDid(t *testing.T) {
	s := newShell(t)
	s.agent()
	contains(t, s.ok("diff", "run-42@step-6", "run-42@step-7"), "steps: +1 ~0 -0", "id=7, done='answer'")
	var set struct {
		Tables []struct {
			Name string
			Rows []struct{ Op string }
		}
	}
	s.document(&set, "diff", "run-42@step-6", "run-42@step-7")
	if len(set.Tables) != 1 || set.Tables[0].Name != "steps" || len(set.Tables[0].Rows) != 1 || set.Tables[0].Rows[0].Op != "insert" {
		t.Errorf("change set %+v", set)
	}
	contains(t, s.ok("diff", "run-42@step-7", "run-42@step-6", "--sql"), `DELETE FROM "steps"`, "COMMIT;")
	contains(t, s.ok("diff", "run-42@slot:1", "run-42", "--summary"), "TABLE     INSERTED  UPDATED  DELETED\n", "steps     2 ", "(schema)  1 ")
	if r := s.run("diff", "run-42@slot:1", "run-42", "--max-rows", "1", "--json"); r.code != exitFailed || !strings.Contains(r.err, "too_large") {
		t.Errorf("too much: %+v", r)
	}
}

func TestQueryShowsWhatIsStored(t *testing.T) {
	s := newShell(t)
	s.agent()
	if got, want := s.ok("query", "run-42@step-7", "select * from steps"), `id  done    at
6   search  2026-11-30 10:00:00
7   answer  2026-11-30 10:01:00
`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	type answer struct {
		Columns   []string
		Rows      [][]any
		Truncated bool
	}
	var v answer
	s.document(&v, "query", "run-42", "select id, at from steps; -- the end")
	if len(v.Rows) != 2 || v.Rows[0][1] != "2026-11-30 10:00:00" || v.Truncated || !slices.Equal(v.Columns, []string{"id", "at"}) {
		t.Errorf("got %+v", v)
	}
	v = answer{}
	s.document(&v, "query", "run-42", "select 1 from steps where id > 100")
	if v.Rows == nil || len(v.Rows) != 0 {
		t.Errorf("no rows: %+v", v)
	}
	if got, want := s.ok("query", "run-42", `select 9007199254740993 a, x'00ff' b, 1.0 c, null d, 'a<b"é' e, 'é' || char(9, 10, 27) f`, "--json"),
		`{"columns":["a","b","c","d","e","f"],"rows":[[{"integer":"9007199254740993"},{"blob":"AP8="},1.0,null,"a\u003cb\"é","é\t\n\u001b"]],"truncated":false}`+"\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	out := s.ok("query", "run-42", "select char(27) || '[2J' a, x'00ff' b, null c, zeroblob(100) d, printf('%.300c', 'x') e")
	contains(t, out, "\ufffd[2J", "x'00ff'", "NULL", "(100 bytes)", "... (300 bytes)")
	if strings.Contains(out, "\x1b") {
		t.Errorf("an escape sequence of the data reaches the terminal: %q", out)
	}

	r := s.run("query", "run-42", "select id from steps", "--limit", "1")
	if r.code != exitOK || r.out != "id\n6\n" || !strings.Contains(r.err, "more rows than --limit 1") {
		t.Errorf("limited: %+v", r)
	}
	s.document(&v, "query", "run-42", "select id from steps", "--limit", "1")
	if !v.Truncated || len(v.Rows) != 1 {
		t.Errorf("limited: %+v", v)
	}
	s.document(&v, "query", "run-42", "with recursive n(i) as (select 1 union all select i+1 from n where i < 2500) select i from n", "--limit", "0")
	if v.Truncated || len(v.Rows) != 2500 {
		t.Errorf("unlimited: %d rows", len(v.Rows))
	}
}

func TestQueryOnlyReads(t *testing.T) {
	s := newShell(t)
	s.agent()
	file := filepath.Join(t.TempDir(), "made.db")
	for _, c := range []struct {
		sql  string
		code int
	}{
		{"insert into steps values(8, '', '')", exitUsage},
		{"select 1; delete from steps", exitUsage},
		{"", exitUsage},
		{"-- nothing", exitUsage},
		{"select ?", exitUsage},
		{"attach '" + file + "' as other", exitFailed},
		{"vacuum into '" + file + "'", exitUsage},
		{"selec", exitFailed},
		{"select * from nothing", exitFailed},
		{"select abs(-9223372036854775808)", exitFailed},
	} {
		for _, json := range [][]string{nil, {"--json"}} {
			if r := s.run(append([]string{"query", "run-42", c.sql}, json...)...); r.code != c.code || r.out != "" || strings.Count(r.err, "\n") != 1 {
				t.Errorf("%q %v: %+v, want exit %d and one line", c.sql, json, r, c.code)
			}
		}
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a query has made a file: %v", err)
	}
	if got := s.lines("log", "run-42"); len(got) != 5 {
		t.Errorf("queries have left entries in the log: %v", got)
	}
}

func TestInstancesHaveOneDatabaseForEachKey(t *testing.T) {
	s := newShell(t)
	s.agent()
	var in view.Instance
	contains(t, s.ok("instance", "ensure", "customer-7", "--ttl", "7d", "--metadata", "a=b"), "database    customer-7\n", "started     created\n")
	s.document(&in, "instance", "ensure", "customer-7")
	if in.Name != "customer-7" || in.Generation != 1 || in.Started != "resumed" {
		t.Errorf("ensured %+v", in)
	}

	// One that somebody has open is left alone.
	db := s.open("customer-7")
	defer db.Close()
	contains(t, s.ok("instance", "ensure", "customer-7"), "started     running\n")
	if err := db.Synced(t.Context()); err != nil {
		t.Errorf("the owner that was left alone: %v", err)
	}
	if r := s.run("instance", "ensure", "customer-7", "--expect-id", strings.Repeat("0", 32)); r.code != exitConflict {
		t.Errorf("another database was expected: %+v", r)
	}
	s.ok("instance", "ensure", "customer-7", "--take-over")
	if err := db.Synced(t.Context()); err == nil {
		t.Error("the former owner's Synced is nil after a take-over")
	}

	contains(t, s.ok("instance", "get", "customer-7"), "generation  1\n")
	s.document(&in, "instance", "get", "customer-7")
	first := in.DatabaseID

	contains(t, s.ok("instance", "replace", "customer-7", "--template", "run-42"), "generation  2\n", "customer-7.g2\n")
	in = view.Instance{}
	s.document(&in, "instance", "replace", "customer-7", "--from", "slot:1", "--delete-old", "--yes")
	if in.Generation != 3 || in.DatabaseID == first || in.Name != "customer-7.g3" {
		t.Errorf("replaced %+v", in)
	}
	if r := s.run("database", "get", "customer-7.g2"); r.code != exitNotFound {
		t.Errorf("the old one was to be deleted: %+v", r)
	}
	contains(t, s.ok("database", "get", "customer-7"), "frozen")

	contains(t, s.ok("instance", "release", "customer-7"), "customer-7 has no database now\n")
	var released struct {
		Key      string
		Released bool
	}
	s.document(&released, "instance", "release", "customer-7")
	if !released.Released {
		t.Errorf("released %+v", released)
	}
	contains(t, s.ok("instance", "adopt", "customer-7", "run-42"), "database    run-42\n")
	in = view.Instance{}
	s.document(&in, "instance", "adopt", "customer-7", "run-42")
	if in.Name != "run-42" || in.Generation != 4 {
		t.Errorf("adopted %+v", in)
	}
	if r := s.run("instance", "adopt", "customer-8", "run-42"); r.code != exitConflict {
		t.Errorf("adopted by two: %+v", r)
	}

	// It was deleted: the next one.
	s.ok("database", "delete", "run-42", "--yes")
	s.document(&in, "instance", "ensure", "customer-7")
	if in.Generation != 5 || in.Started != "created" {
		t.Errorf("ensured %+v", in)
	}
}

func TestJanitorDeletesAndTells(t *testing.T) {
	s := newShell(t)
	s.agent()
	s.ok("database", "create", "short", "--ttl", "1ns", "--metadata", "kind=scratch")
	contains(t, s.ok("janitor", "--dry-run"), "short  would be expired\n")
	var v sweep
	s.document(&v, "janitor", "--dry-run", "--prefix", "run-")
	if !v.DryRun || !v.Complete || v.Databases != 1 || len(v.Done) != 0 || v.Failed == nil || v.Kept == nil {
		t.Errorf("swept %+v", v)
	}
	contains(t, s.ok("janitor", "--no-compact", "--no-collect", "--parallel", "2", "--grace", "1h"), "short  expired\n", ": 1 database left; collected: ")
	s.ok("database", "create", "short", "--ttl", "1ns", "--metadata", "kind=scratch")
	v = sweep{}
	s.document(&v, "janitor", "--metadata", "kind=scratch", "--max", "1")
	if len(v.Done) != 1 || v.Done[0].Name != "short" || v.Done[0].Why != "expired" || v.TooMany {
		t.Errorf("swept %+v", v)
	}
	if r := s.run("janitor", "--older-than", "1h"); r.code != exitUsage {
		t.Errorf("all of the account: %+v", r)
	}
	s.ok("database", "create", "run-43")
	if r := s.run("janitor", "--max", "1", "--json"); r.code != exitThreshold || !strings.Contains(r.out, `"too_many":true`) || !strings.Contains(r.err, "over_threshold") {
		t.Errorf("too many: %+v", r)
	}
}

func TestUsageAndCostAreShown(t *testing.T) {
	s := newShell(t)
	s.agent()
	contains(t, s.ok("usage", "run-42"), "databases    1 live, 1 created\n", "commits      3\n", "opens        1\n")
	contains(t, s.ok("usage"), "databases    1 live, 1 created\n")
	var v usage
	s.document(&v, "usage")
	if v.Name != "" || v.Commits != 3 || v.WriteUnits < 5 || v.Requests.Put == 0 || v.StoredBytes == 0 || v.Cost != nil {
		t.Errorf("usage %+v", v)
	}
	prices := filepath.Join(t.TempDir(), "prices.json")
	if err := os.WriteFile(prices, []byte(`{"currency": "USD", "write_unit": 0.25}`), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(t, s.ok("usage", "run-42", "--price-file", prices, "--runs-per-day", "1000", "--kept", "7d"), "total USD", "a service that bills write units", "1000 runs a day, kept 168h0m0s: 30 days")
	s.document(&v, "usage", "run-42", "--price-file", prices, "--runs-per-day", "10")
	if v.Currency != "USD" || v.Cost.Service.Total != 0.25*float64(v.WriteUnits) || v.CostOfRuns.Service.Total != 300*v.Cost.Service.Total {
		t.Errorf("usage %+v, cost %+v, %+v", v, v.Cost, v.CostOfRuns)
	}
	if err := os.WriteFile(prices, []byte(`{"write_units": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.run("usage", "--price-file", prices); r.code != exitFailed || !strings.Contains(r.err, prices) {
		t.Errorf("a bad price file: %+v", r)
	}
}

func TestVerifyNamesWhatIsDamaged(t *testing.T) {
	s := newDirShell(t)
	s.agent()
	contains(t, s.ok("verify", "run-42"), "read  5 slots, 0 segments, 0 bases, ", "all is whole\n")
	var v struct {
		OK       bool
		Entries  int
		Problems []struct{ Key, Error string }
	}
	s.document(&v, "verify", "run-42")
	if !v.OK || v.Entries != 5 || v.Problems == nil {
		t.Errorf("verified %+v", v)
	}
	slots, err := filepath.Glob(filepath.Join(strings.TrimPrefix(s.url, "file://"), "db", "run-42", "log", "*"))
	if err != nil || len(slots) != 5 {
		t.Fatalf("log objects: %v, %v", slots, err)
	}
	damaged := slots[len(slots)-3]
	b, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.Chmod(damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.run("verify", "run-42")
	if r.code != exitFailed || !strings.Contains(r.out, "db/run-42/log/"+filepath.Base(damaged)) || !strings.Contains(r.err, "damaged: ") {
		t.Errorf("damaged: %+v", r)
	}
	r = s.run("verify", "run-42", "--json")
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || r.code != exitFailed || v.OK || len(v.Problems) == 0 || !strings.Contains(r.err, `"code":"corrupt"`) {
		t.Errorf("damaged: %+v, %v", r, err)
	}
}

func TestVersionAndCompletion(t *testing.T) {
	s := newShell(t)
	s.agent()
	contains(t, s.ok("version"), "tonbo ", "go1.")
	var v map[string]any
	s.document(&v, "version")
	if v["version"] == "" || v["go"] == "" {
		t.Errorf("version %v", v)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		contains(t, s.ok("completion", shell), "tonbo")
	}
	if r := s.run("__complete", "log", "run"); r.code != exitOK || !strings.HasPrefix(r.out, "run-42\n") {
		t.Errorf("completed: %+v", r)
	}
	contains(t, s.ok("--help"), "run-42@step-7", "Exit codes")
	contains(t, s.ok("help", "janitor"), "--older-than")
	contains(t, s.ok("help", "database", "create"), "--ttl")
	contains(t, s.ok("help"), "Available Commands")
}
