package tonbo_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
)

// TestObjectOfADirectoryThatIsCutOffIsDamage: it is ErrCorrupt, which names the object and says what to do; other databases are listed, opened and swept.
func TestObjectOfADirectoryThatIsCutOffIsDamage(t *testing.T) {
	ctx := t.Context()
	root := t.TempDir()
	o := tonbo.Options{URL: "file://" + filepath.ToSlash(root), Dir: t.TempDir()}
	c := newClient(t, o)
	for _, name := range []string{"a", "b", "c"} {
		must[*tonbo.Database](t)(c.Create(ctx, name, tonbo.CreateOptions{}))
		db, err := c.Open(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, db, "CREATE TABLE t(x)")
		synced(t, db)
		closeDB(t, db)
	}
	cut := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		file := found[0] // the newest slot
		fi, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, fi.Size()-1); err != nil {
			t.Fatal(err)
		}
		rel, _ := filepath.Rel(root, file)
		return filepath.ToSlash(rel)
	}
	damage := func(what string, err error, object string) {
		t.Helper()
		wantIs(t, what, err, tonbo.ErrCorrupt)
		if err != nil && (!strings.Contains(err.Error(), object) || !strings.Contains(err.Error(), "backup") || strings.Contains(err.Error(), "move it away")) {
			t.Errorf("%s: %v", what, err)
		}
	}
	slot := cut("db/b/log/*")
	_, err := c.Open(ctx, "b")
	damage("open", err, slot)
	_, err = tonbo.OpenReadOnly(ctx, "b", o)
	damage("read", err, slot)
	if r, err := c.Verify(ctx, "b"); err != nil || r.OK() {
		t.Errorf("verify: %v, %+v", err, r)
	}
	record := cut("names/b/*")
	var names []string
	for d, lerr := range c.List(ctx, tonbo.Filter{}) {
		if err = lerr; lerr == nil {
			names = append(names, d.Name)
		}
	}
	if got := strings.Join(names, " "); got != "a c" {
		t.Errorf("listed: %s", got)
	}
	damage("list", err, record)
	r, err := c.Sweep(ctx, tonbo.Janitor{})
	if err != nil || len(r.Failed) != 1 || r.Databases != 2 {
		t.Errorf("sweep: %v, %+v", err, r)
	} else {
		damage("sweep", r.Failed[0], record)
	}
	db, err := c.Open(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	closeDB(t, db)
}
