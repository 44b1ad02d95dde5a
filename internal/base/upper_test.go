package base_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/internal/base"
)

func upperSample() *base.Manifest {
	m := packedSample()
	m.UpperObject = &base.UpperObject{Key: "db/g/seg/6", Pages: 11, Size: 7000, Sum: base.SumString(5), Slot: 60, Stale: base.NewPageMarks(11, func(i int) bool { return i == 0 || i == 10 }), Spare: true}
	return m
}

func TestManifestWithAnUpperObjectRoundTrip(t *testing.T) {
	for _, m := range []*base.Manifest{upperSample(), func() *base.Manifest { m := upperSample(); m.Packed = nil; return m }()} {
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := base.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		again, err := got.Encode()
		if err != nil || string(again) != string(b) || got.Format != base.FormatUpper {
			t.Errorf("%v\n%s\n%s", err, b, again)
		}
		if !slices.Contains(slices.Collect(got.Named()), "db/g/seg/6") {
			t.Errorf("named: %v", slices.Collect(got.Named()))
		}
		var stale []int
		for i := range 20 {
			if got.UpperObject.Stale.Has(i) {
				stale = append(stale, i)
			}
		}
		if !slices.Equal(stale, []int{0, 10}) || got.UpperObject.Stale.Count() != 2 {
			t.Errorf("stale: %v", stale)
		}
		for _, older := range []string{`"format":1`, `"format":2`} { // for which it would be no base of theirs
			if _, err := base.Decode([]byte(strings.Replace(string(b), `"format":3`, older, 1))); !errors.Is(err, base.ErrFormat) {
				t.Errorf("%s: %v", older, err)
			}
		}
	}
	if base.NewPageMarks(9, func(int) bool { return false }) != nil {
		t.Error("no mark takes room")
	}
}

func TestDamagedUpperObjectIsRefused(t *testing.T) {
	for name, change := range map[string]func(*base.UpperObject){
		"no key":        func(u *base.UpperObject) { u.Key = "" },
		"no pages":      func(u *base.UpperObject) { u.Pages = 0 },
		"too many":      func(u *base.UpperObject) { u.Pages = base.MaxUpper/4096 + 1; u.Stale = nil },
		"far too many":  func(u *base.UpperObject) { u.Pages = 1 << 62; u.Stale = nil },
		"no size":       func(u *base.UpperObject) { u.Size = 0 },
		"too large":     func(u *base.UpperObject) { u.Size = base.MaxUpper + 1 },
		"sum":           func(u *base.UpperObject) { u.Sum = "5" },
		"slot":          func(u *base.UpperObject) { u.Slot = 0 },
		"stale, short":  func(u *base.UpperObject) { u.Stale = u.Stale[:1] },
		"stale, long":   func(u *base.UpperObject) { u.Stale = append(u.Stale, 0) },
		"stale, beyond": func(u *base.UpperObject) { u.Stale[1] |= 8 },
	} {
		m := upperSample()
		change(m.UpperObject)
		b, _ := m.Encode()
		if _, err := base.Decode(b); !errors.Is(err, base.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
