package main

import (
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/spelling"
)

func TestNamesWithPoints(t *testing.T) {
	p := tonbo.Point{ID: "0123456789abcdef0123456789abcdef", Slot: 17, Generation: 3, Time: time.Unix(0, 5), Label: "step-7"}
	for _, c := range []struct {
		s, name string
		at      tonbo.At
	}{
		{"run-42", "run-42", nil},
		{"run-42@", "run-42", nil},
		{"run-42@step-7", "run-42", tonbo.Label("step-7")},
		{"run-42@slot:17", "run-42", tonbo.Slot(17)},
		{"run-42@label:slot:17", "run-42", tonbo.Label("slot:17")},
		{"run-42@label:a@b", "run-42", tonbo.Label("a@b")},
		{"run-42@a b", "run-42", tonbo.Label("a b")},
		{"run-42@time:2026-11-30T10:00:00Z", "run-42", tonbo.Time(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC))},
		{"run-42@point:" + p.String(), "run-42", p},
		{"team@x@", "team@x", nil},
		{"team@x@step-7", "team@x", tonbo.Label("step-7")},
		{"team@x@slot:1", "team@x", tonbo.Slot(1)},
		{"a:b@c:d", "a:b", tonbo.Label("c:d")},
	} {
		name, at, err := parseNameAt(c.s)
		if err != nil || name != c.name {
			t.Errorf("%s: %q, %v", c.s, name, err)
		}
		if want, ok := c.at.(tonbo.Time); ok {
			if got, ok := at.(tonbo.Time); !ok || !time.Time(got).Equal(time.Time(want)) {
				t.Errorf("%s: at %v, want %v", c.s, at, c.at)
			}
		} else if want, ok := c.at.(tonbo.Point); ok {
			if got, ok := at.(tonbo.Point); !ok || got.String() != want.String() {
				t.Errorf("%s: at %v, want %v", c.s, at, c.at)
			}
		} else if at != c.at {
			t.Errorf("%s: at %v, want %v", c.s, at, c.at)
		}
	}
}

func FuzzNameAt(f *testing.F) {
	for _, s := range []string{"run-42", "run-42@slot:1", "a@b@", "@", "a@time:x", "a@point:", "a@label:@slot:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, _, err := parseNameAt(s)
		if err == nil && tonbo.ValidateName(name) != nil {
			t.Errorf("%q: name %q", s, name)
		}
	})
}

func TestDurations(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h": time.Hour, "1h30m": 90 * time.Minute, "7d": 7 * day, "1.5d": 36 * time.Hour, "2w": 14 * day, "1w2d3h": 9*day + 3*time.Hour,
	} {
		if got, err := spelling.Duration(s); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", s, got, err, want)
		}
	}
	for _, s := range []string{"", "0", "0s", "0d", "-1h", "-1d", "1d-1h", "d", "7", "1 d", "1x", "NaNd", "Infd", "1e300d", "1h7d", "2d1w", "1d2d"} {
		if got, err := spelling.Duration(s); err == nil {
			t.Errorf("%q is taken for %s", s, got)
		}
	}
}

func TestWhatOthersWroteDoesNotSteerTheTerminal(t *testing.T) {
	for s, want := range map[string]string{"a\x1b[2Jb": "a\ufffd[2Jb", "a\nb\tc": "a\ufffdb\ufffdc", "a\u202eb": "a\ufffdb", "a\u009bb\x7f": "a\ufffdb\ufffd", "größe 👩‍💻": "größe 👩‍💻"} {
		if got := plain(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 20: "5.0 MiB", 1 << 62: "4096.0 PiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
