package tonbo_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
)

// FuzzNames: a name that is valid is one segment of every key, path and URL, and a point is read as it is written.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"run-42", "customer:1@x", ".", "..", "a/b", "a%2fb", "A\x00", strings.Repeat("n", 201), "00000000000000000000000000000001/7", "ä", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := tonbo.ValidateName(s)
		if err != nil && !errors.Is(err, tonbo.ErrName) {
			t.Fatalf("unnamed: %v", err)
		}
		if err == nil && (len(s) == 0 || len(s) > 200 || strings.Trim(s, ".") == "" || strings.ContainsAny(s, "/\\%?#&= \t\r\n\x00\"'<>")) {
			t.Errorf("%q is a name", s)
		}
		if p, err := tonbo.ParsePoint(s); err == nil {
			if again, err := tonbo.ParsePoint(p.String()); err != nil || again != p {
				t.Errorf("%q is %v, and that is %v, %v", s, p, again, err)
			}
		}
	})
}

// FuzzDataSourceName: a data source name is understood or refused, and nothing is opened by that.
func FuzzDataSourceName(f *testing.F) {
	for _, s := range []string{
		"tonbo:run-42?url=mem://x&dir=/d&strict=1&sync_every=1s&pragma=cache_size(10)&pragma=foreign_keys(on)", "tonbo:///a%20b?x=1", "tonbo:a?pragma=x", "tonbo:a?hydration=full&owner=o&if_idle=-1s", "sqlite:a", "tonbo:a?%zz", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		db, err := sql.Open("tonbo", s)
		if err != nil {
			return
		}
		if !strings.HasPrefix(s, "tonbo:") {
			t.Errorf("%q is a data source name", s)
		}
		if err := db.Close(); err != nil {
			t.Errorf("close %q: %v", s, err)
		}
	})
}

// FuzzPrices: a price list is read or refused.
func FuzzPrices(f *testing.F) {
	f.Add(`{"put":5,"get":0.4}`)
	f.Add(`{"put":-1}`)
	f.Add(`[1e999]`)
	f.Fuzz(func(t *testing.T, s string) {
		p, err := tonbo.ReadPrices(strings.NewReader(s))
		if err == nil {
			(&tonbo.Usage{Commits: 1}).Cost(p)
		}
	})
}
