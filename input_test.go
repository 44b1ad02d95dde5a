package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// objects lists a store: keys with sizes and tags.
func objects(t testing.TB, s remote.Store) map[string]remote.Info {
	t.Helper()
	m := map[string]remote.Info{}
	after := ""
	for {
		page, more, err := s.List(context.Background(), "", remote.ListOptions{After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page {
			m[i.Key], after = i, i.Key
		}
		if !more {
			return m
		}
	}
}

// files lists a directory tree: paths with sizes.
func files(t testing.TB, dir string) map[string]int64 {
	t.Helper()
	m := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if m[rel] = i.Size(); e.IsDir() {
			m[rel] = -1
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestUnknownNameWritesNothing(t *testing.T) {
	a := newAccount(t)
	o := a.machine()
	for _, used := range []bool{false, true} {
		if used {
			a.create("run")
			closeDB(t, open(t, "run", o))
		}
		before, tree := objects(t, a.store), files(t, o.Dir)
		_, err := tonbo.Open(t.Context(), "rum", o)
		if !errors.Is(err, tonbo.ErrNotFound) {
			t.Errorf("Open: %v", err)
		}
		contains(t, err, "rum")
		c, err := tonbo.NewClient(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), "rum"); !errors.Is(err, tonbo.ErrNotFound) {
			t.Errorf("Get: %v", err)
		}
		db, err := sql.Open("tonbo", "tonbo:rum?url=mem://input-unknown&dir="+o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Ping(); !errors.Is(err, tonbo.ErrNotFound) {
			t.Errorf("Ping: %v", err)
		}
		if tonbo.From(db) != nil {
			t.Error("From returns a DB that could not be opened")
		}
		db.Close()
		if after := objects(t, a.store); !maps.Equal(before, after) {
			t.Errorf("objects: %v, before %v", after, before)
		}
		if after := files(t, o.Dir); !maps.Equal(tree, after) {
			t.Errorf("files: %v, before %v", after, tree)
		}
		if used {
			if err := tonbo.Delete(t.Context(), "rum", o); !errors.Is(err, tonbo.ErrNotFound) {
				t.Errorf("Delete: %v", err)
			}
			if after := objects(t, a.store); !maps.Equal(before, after) {
				t.Errorf("objects after Delete: %v, before %v", after, before)
			}
		}
	}
}

func TestBadNamesAreRefusedWithoutARequest(t *testing.T) {
	a, s := faulty(t)
	o := a.machine()
	for _, name := range []string{"", ".", "..", "../x", "a/b", "a\\b", "-a", ":a", "a b", "a\x00", "ä", "a%2fb", strings.Repeat("x", 201)} {
		_, err := tonbo.Open(t.Context(), name, o)
		_, cerr := tonbo.Create(t.Context(), name, o)
		derr := tonbo.Delete(t.Context(), name, o)
		for _, err := range []error{err, cerr, derr} {
			if !errors.Is(err, tonbo.ErrName) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	if calls := s.Calls(); len(calls) != 0 {
		t.Errorf("requests were sent: %v", calls)
	}
	if f := files(t, o.Dir); len(f) != 1 {
		t.Errorf("files: %v", f)
	}
	for _, name := range []string{"a", "A:b@c_d-e.f", "0", strings.Repeat("x", 200), "con", "nul.db", "x.lost-1.db"} {
		if err := tonbo.ValidateName(name); err != nil {
			t.Error(err)
		}
	}
}

func TestNamesStayApartInOneDirectory(t *testing.T) {
	a := newAccount(t)
	o := a.machine()
	names := []string{"run", "Run", "RUN", "run.", "con", "a:b", strings.Repeat("x", 200), strings.Repeat("X", 200)}
	for _, n := range names {
		a.create(n)
		db := open(t, n, o)
		exec(t, db, "CREATE TABLE t(v)")
		exec(t, db, "INSERT INTO t VALUES(?)", n)
		closeDB(t, db)
	}
	for _, n := range names {
		db := open(t, n, o)
		if got := rows(t, db, "SELECT v FROM t"); got != n || db.Status().ColdStart {
			t.Errorf("%q holds %q, cold %v", n, got, db.Status().ColdStart)
		}
		closeDB(t, db)
	}
}

func TestNoRemoteSaysHowToSetOne(t *testing.T) {
	t.Setenv("TONBO_URL", "")
	_, err := tonbo.Open(t.Context(), "run", tonbo.Options{Dir: t.TempDir()})
	contains(t, err, "Options.URL", "TONBO_URL", "s3://")
	_, err = tonbo.NewClient(tonbo.Options{})
	contains(t, err, "TONBO_URL")
	t.Setenv("TONBO_URL", "mem://input-env")
	t.Setenv("TONBO_DIR", t.TempDir())
	if _, err := tonbo.Create(t.Context(), "run", tonbo.Options{}); err != nil {
		t.Fatal(err)
	}
	closeDB(t, open(t, "run", tonbo.Options{}))
	if f := files(t, os.Getenv("TONBO_DIR")); len(f) < 3 {
		t.Errorf("TONBO_DIR holds %v", f)
	}
}

func TestBadURLsSayWhatIsWrong(t *testing.T) {
	for url, want := range map[string]string{
		"ftp://x":              "s3://bucket/prefix",
		"/just/a/path":         "s3://bucket/prefix",
		"file://relative/path": "three slashes",
		"file://":              "names no directory",
		"file:///":             "names no directory",
		"file:///tmp/x?y=1":    "takes no parameters",
		"file:///tmp/x#y":      "takes no fragment",
		"mem://x?y=1":          "takes no parameters",
		"https://example.org":  "no API key",
		"s3://":                "bucket",
		"s3://b?nonsense=1":    "nonsense",
		"s3://b\x7f":           "URL",
	} {
		_, err := tonbo.Open(t.Context(), "run", tonbo.Options{URL: url, Dir: t.TempDir()})
		if err == nil {
			t.Errorf("%q is accepted", url)
			continue
		}
		contains(t, err, "run", want)
	}
}

// awsEnv makes the environment that of a process with these credentials and no other AWS settings.
func awsEnv(t *testing.T) {
	for _, k := range []string{"AWS_PROFILE", "AWS_CA_BUNDLE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
		t.Setenv(k, "")
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_REGION", "us-east-1")
}

func TestUnreachableStoreIsNamed(t *testing.T) {
	awsEnv(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = tonbo.Open(ctx, "run", tonbo.Options{URL: "s3://bucket/p?path_style=true&endpoint=http://" + addr, Dir: t.TempDir()})
	contains(t, err, "run", "s3://bucket/p", "refused")
	if errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("an unreachable store is no proof of absence: %v", err)
	}
	_, err = tonbo.Open(t.Context(), "run", tonbo.Options{URL: "file://" + filepath.ToSlash(filepath.Join(os.DevNull, "x")), Dir: t.TempDir()})
	contains(t, err, "run", os.DevNull)
}

func TestRefusedCredentialsAreNamed(t *testing.T) {
	awsEnv(t)
	for _, c := range []struct {
		status int
		code   string
		want   error
	}{
		{403, "InvalidAccessKeyId", tonbo.ErrUnauthorized},
		{403, "SignatureDoesNotMatch", tonbo.ErrUnauthorized},
		{400, "ExpiredToken", tonbo.ErrUnauthorized},
		{403, "AccessDenied", tonbo.ErrForbidden},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(c.status)
			w.Write([]byte(`<?xml version="1.0"?><Error><Code>` + c.code + `</Code><Message>no</Message><RequestId>r1</RequestId></Error>`))
		}))
		o := tonbo.Options{URL: "s3://bucket/p?path_style=true&endpoint=" + srv.URL, Dir: t.TempDir()}
		_, err := tonbo.Open(t.Context(), "run", o)
		_, cerr := tonbo.Create(t.Context(), "run", o)
		for _, err := range []error{err, cerr} {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v", c.code, err)
				continue
			}
			contains(t, err, "run", "s3://bucket/p", c.code)
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells a secret: %v", err)
			}
		}
		srv.CloseClientConnections()
		srv.Close()
	}
}

func TestUnfitStoreIsRefusedAndNothingIsMade(t *testing.T) {
	a, s := faulty(t)
	s.IgnoreConditions(true)
	o := a.machine()
	_, err := tonbo.Create(t.Context(), "run", o)
	if !errors.Is(err, tonbo.ErrStoreUnfit) {
		t.Fatalf("Create: %v", err)
	}
	contains(t, err, "run", "mem://test", "If-None-Match")
	for k := range objects(t, a.store) {
		if strings.HasPrefix(k, "db/") || strings.HasPrefix(k, "names/") {
			t.Errorf("%s was made", k)
		}
	}
	// It was fit once, and a bucket's settings or the gateway have changed since.
	inner := mem.New("test")
	good := &account{t: t, store: inner}
	good.create("run")
	s = tonbotest.NewStore(inner)
	s.IgnoreConditions(true)
	o.Remote = s
	if _, err := tonbo.Open(t.Context(), "run", o); !errors.Is(err, tonbo.ErrStoreUnfit) {
		t.Errorf("Open: %v", err)
	}
	if err := tonbo.Delete(t.Context(), "run", o); !errors.Is(err, tonbo.ErrStoreUnfit) {
		t.Errorf("Delete: %v", err)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	o.Pragmas = map[string]string{"busy_timeout": "1); DROP TABLE t"}
	_, err := tonbo.Open(t.Context(), "run", o)
	contains(t, err, "Pragmas", "busy_timeout")
	for _, size := range []int{1, 511, 1000, 131072, -4096} {
		_, err := tonbo.Create(t.Context(), "other", a.machine(), tonbo.CreateOptions{PageSize: size})
		contains(t, err, "other", strconv.Itoa(size), "512 to 65536")
	}
	long := strings.Repeat("x", 257)
	for _, m := range []map[string]string{{"": "x"}, {"k": long}, {long: "v"}} {
		_, err := tonbo.Create(t.Context(), "other", a.machine(), tonbo.CreateOptions{Metadata: m})
		contains(t, err, "metadata")
	}
	many := map[string]string{}
	for i := range 33 {
		many[strconv.Itoa(i)] = "v"
	}
	_, err = tonbo.Create(t.Context(), "other", a.machine(), tonbo.CreateOptions{Metadata: many})
	contains(t, err, "33", "32")
	if _, err := tonbo.Create(t.Context(), "run", a.machine()); !errors.Is(err, tonbo.ErrExists) {
		t.Errorf("Create: %v", err)
	}
	d, err := tonbo.Create(t.Context(), "run", a.machine(), tonbo.CreateOptions{IfNotExists: true})
	if err != nil || d.Name != "run" {
		t.Errorf("Create with IfNotExists: %v %v", d, err)
	}
}

func TestBadDataSourceNames(t *testing.T) {
	for dsn, want := range map[string]string{
		"run":                         "tonbo:<name>",
		"tonbo:":                      "name",
		"tonbo:a/b":                   "invalid name",
		"tonbo:run?nonsense=1":        "known are",
		"tonbo:run?strict=perhaps":    "true or false",
		"tonbo:run?sync_every=1":      "sync_every",
		"tonbo:run?pragma=cache_size": "name(value)",
		"tonbo:run?%zz":               "data source name",
		"tonbo:%zz":                   "data source name",
	} {
		_, err := sql.Open("tonbo", dsn)
		if err == nil {
			t.Errorf("%q is accepted", dsn)
			continue
		}
		contains(t, err, want)
	}
	t.Setenv("TONBO_URL", "")
	db, err := sql.Open("tonbo", "tonbo:run")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	contains(t, db.Ping(), "run", "TONBO_URL")
}

func TestDataSourceNameSetsOptions(t *testing.T) {
	dir := t.TempDir()
	if _, err := tonbo.Create(t.Context(), "a:b@c", tonbo.Options{URL: "mem://input-dsn"}); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("tonbo", "tonbo:a:b@c?url=mem://input-dsn&dir="+dir+"&strict=true&owner=me&sync_timeout=7s&pragma=cache_size(-123)&pragma=foreign_keys(1)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if got := rows(t, db, "PRAGMA cache_size") + rows(t, db, "PRAGMA foreign_keys"); got != "-1231" {
		t.Errorf("pragmas: %s", got)
	}
	if s := tonbo.From(db).Status(); !s.Strict || s.Name != "a:b@c" {
		t.Errorf("%+v", s)
	}
	open(t, "a:b@c", tonbo.Options{URL: "mem://input-dsn", Dir: t.TempDir()})
	err = tonbo.From(db).Synced(t.Context())
	if !errors.Is(err, tonbo.ErrFenced) {
		t.Error(err)
	}
}

func TestFromKnowsItsOwnPoolsOnly(t *testing.T) {
	other, err := sql.Open("sqlite3", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if tonbo.From(other) != nil {
		t.Error("From takes any pool for ours")
	}
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	wrapped := sql.OpenDB(db.Connector())
	defer wrapped.Close()
	if _, err := wrapped.Exec("CREATE TABLE t(v); INSERT INTO t VALUES(1)"); err != nil {
		t.Fatal(err)
	}
	if d := tonbo.From(wrapped); d == nil || d.Synced(t.Context()) != nil {
		t.Error("From does not know a pool over DB.Connector")
	}
	wrapped.Close()
	exec(t, db, "INSERT INTO t VALUES(2)")
	synced(t, db)
}

func TestIfIdleIsAdvisory(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	o.Owner = "agent-1"
	db := open(t, "run", o)
	other := a.machine()
	other.IfIdle = time.Hour
	_, err := tonbo.Open(t.Context(), "run", other)
	if !errors.Is(err, tonbo.ErrBusy) {
		t.Errorf("Open: %v", err)
	}
	contains(t, err, "run", "agent-1", "IfIdle")
	synced(t, db)
	closeDB(t, db)
	closeDB(t, open(t, "run", other))
}
