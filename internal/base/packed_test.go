package base_test

import (
	"errors"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/internal/base"
)

func packedSample() *base.Manifest {
	m := sample()
	m.Packed = &base.Packed{Slot: 90, PageCount: 49990, Packs: []base.Pack{
		{Key: "db/a/seg/4", From: 92, Slot: 110, Entries: 12, Pages: 30, Size: 9000},
		{Key: "db/a/seg/5", From: 111, Slot: 119, Entries: 9, Pages: 9, Size: 5000},
	}}
	return m
}

func TestManifestWithPacksRoundTrip(t *testing.T) {
	b, err := packedSample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	m, err := base.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	again, err := m.Encode()
	if err != nil || string(again) != string(b) || m.Format != base.FormatPacked {
		t.Errorf("%v\n%s\n%s", err, b, again)
	}
	if got := slices.Collect(m.Named()); strings.Join(got, " ") != "db/a/seg/1 db/g/seg/2 db/a/seg/3 db/a/seg/4 db/a/seg/5" {
		t.Errorf("named: %v", got)
	}
	if at, count := m.LevelsAt(); at != 90 || count != 49990 {
		t.Errorf("levels at %d, %d pages", at, count)
	}
	if entries, pages, size := base.PackedTotal(m.Packs()); entries != 21 || pages != 39 || size != 14000 {
		t.Errorf("%d entries, %d pages, %d bytes", entries, pages, size)
	}
	var none *base.Manifest
	if none.Packs() != nil || len(slices.Collect(none.Named())) != 0 {
		t.Error("no manifest names something")
	}
}

func TestDamagedManifestWithPacksIsRefused(t *testing.T) {
	for name, change := range map[string]func(*base.Manifest){
		"no pack":       func(m *base.Manifest) { m.Packed.Packs = nil },
		"no slot":       func(m *base.Manifest) { m.Packed.Slot = 0 },
		"no pages":      func(m *base.Manifest) { m.Packed.PageCount = 0 },
		"below":         func(m *base.Manifest) { m.Packed.Packs[0].From = 90 },
		"beyond":        func(m *base.Manifest) { m.Packed.Packs[1].Slot = 121 },
		"backwards":     func(m *base.Manifest) { m.Packed.Packs[1].Slot = 110 },
		"not ascending": func(m *base.Manifest) { m.Packed.Packs[1].From = 110 },
		"no key":        func(m *base.Manifest) { m.Packed.Packs[1].Key = "" },
		"empty":         func(m *base.Manifest) { m.Packed.Packs[1].Entries = 0 },
		"of no size":    func(m *base.Manifest) { m.Packed.Packs[1].Size = 0 },
		"too large":     func(m *base.Manifest) { m.Packed.Packs[1].Size = base.PackedSize },
		"too many":      func(m *base.Manifest) { m.Packed.Packs[1].Entries = base.MaxPacked },
		"upper":         func(m *base.Manifest) { m.Upper = &base.Upper{} },
	} {
		m := packedSample()
		change(m)
		b, _ := m.Encode()
		if _, err := base.Decode(b); !errors.Is(err, base.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPacksAreFewAndWrittenFewTimes: whatever they are made of, and none but the last ones when there is a little to spare.
func TestPacksAreFewAndWrittenFewTimes(t *testing.T) {
	for name, fresh := range map[string]func(*rand.Rand) int64{
		"when a base is due": func(*rand.Rand) int64 { return 105 << 10 },
		"in quiet moments":   func(*rand.Rand) int64 { return 5 << 10 },
		"at each close":      func(*rand.Rand) int64 { return 3 << 10 },
		"of any size":        func(r *rand.Rand) int64 { return 1 + r.Int63n(300<<10) },
	} {
		rng := rand.New(rand.NewSource(1))
		var packs []base.Pack
		var came, written int64
		most := 0
		for size := int64(0); size < 4<<20; {
			n := fresh(rng)
			came, size = came+n, size+n
			merge := base.MergePacks(packs, n, 0, 2)
			for _, p := range packs[len(packs)-merge:] {
				n += p.Size
			}
			written += n
			packs = append(packs[:len(packs)-merge], base.Pack{Size: n})
			most = max(most, len(packs))
		}
		t.Logf("%s: %.2f bytes written for each, at most %d packs", name, float64(written)/float64(came), most)
		if float64(written) > 3.5*float64(came) || most > 24 {
			t.Errorf("%s: %.2f bytes written for each, at most %d packs", name, float64(written)/float64(came), most)
		}
		if merge := base.MergePacks(packs, 0, 5<<20, 2); len(packs) > 2 && len(packs)-merge+1 != 2 {
			t.Errorf("%s: %d of %d packs become one when there is time, want two left", name, merge, len(packs))
		}
		if merge := base.MergePacks(packs, 0, 0, 2); merge != 0 {
			t.Errorf("%s: %d packs become one when there is nothing to spare", name, merge)
		}
	}
}
