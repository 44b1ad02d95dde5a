package dir_test

import (
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
)

func TestSpelling(t *testing.T) {
	for seg, want := range map[string]string{
		"run-42_x@y.z": "run-42_x@y.z", "My:run": "=4dy=3arun", "100%": "100=25", ".x": "=2ex", "...": "=2e.=2e", "x.": "x=2e",
		"con": "=63on", "nul.txt": "=6eul.txt", "com1": "=63om1", "con1": "con1", "COM1": "=43=4f=4d1",
	} {
		if got := dir.Spell(seg); got != want {
			t.Errorf("%q is spelled %q, want %q", seg, got, want)
		}
	}
}

func FuzzNoTwoNamesMeanOneSegment(f *testing.F) {
	for _, s := range []string{"a", "=4d", "=4D", "=", "=6", "=61", "..", "con", "=63on", ".tonbo", "x~"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if seg, ok := dir.Unspell(name); ok && dir.Spell(seg) != name {
			t.Errorf("%q means %q, which is spelled %q", name, seg, dir.Spell(seg))
		}
		if remote.CheckKey(name) != nil || strings.Contains(name, "/") {
			return
		}
		spelled := dir.Spell(name)
		if seg, ok := dir.Unspell(spelled); !ok || seg != name {
			t.Errorf("%q is spelled %q, which means %q", name, spelled, seg)
		}
		if spelled != strings.ToLower(spelled) || spelled[0] == '.' || strings.HasSuffix(spelled, ".") {
			t.Errorf("%q is spelled %q", name, spelled)
		}
	})
}
