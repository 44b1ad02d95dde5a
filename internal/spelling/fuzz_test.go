package spelling_test

import (
	"testing"

	"github.com/tonbo-go/tonbo/internal/spelling"
)

// FuzzSpelling: what a person or a program writes of points, labels and durations is understood or refused, and a duration is above zero.
func FuzzSpelling(f *testing.F) {
	for _, s := range []string{"", "slot:17", "slot:0", "time:2026-11-30T10:00:00Z", "point:x", "label:step-7", "label:", "step-7", "90s", "1h30m", "2w", "1d12h", "9999999999w", "-1d", "1.5d", "\x00", "\u202e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := spelling.Duration(s); err == nil && d <= 0 {
			t.Errorf("%q is %v", s, d)
		}
		if at, err := spelling.Point(s); (at == nil) != (err != nil || s == "") {
			t.Errorf("%q is %v, %v", s, at, err)
		}
		if err := spelling.Label(s); err == nil && (len(s) == 0 || len(s) > 200 || !spelling.Printable(s)) {
			t.Errorf("%q is a label", s)
		}
	})
}
