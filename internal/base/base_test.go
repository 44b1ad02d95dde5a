package base_test

import (
	"errors"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/internal/base"
)

func sample() *base.Manifest {
	return &base.Manifest{
		ID: strings.Repeat("ab", 16), Generation: 7, Slot: 120, Time: time.Unix(1, 0).UTC(), PageSize: 4096, PageCount: 50000, Checksum: base.SumString(0x1122334455667788),
		Levels: [][]base.Segment{
			{{Key: "db/a/seg/1", First: 1, Last: 49000, Pages: 730, From: 90, Slot: 120, Size: 1 << 20}},
			{{Key: "db/g/seg/2", First: 1, Last: 16384, Pages: 16384, From: 1, Slot: 60, Size: 20 << 20}, {Key: "db/a/seg/3", First: 16385, Last: 50000, Pages: 33616, From: 61, Slot: 89, Size: 40 << 20}},
		},
		Marks: []base.Mark{{Slot: 3, Time: time.Unix(0, 0).UTC()}},
	}
}

func TestManifestRoundTrip(t *testing.T) {
	b, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	m, err := base.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	again, err := m.Encode()
	if err != nil || string(again) != string(b) {
		t.Errorf("%v\n%s\n%s", err, b, again)
	}
	if len(m.Runs()) != 1 || base.Pages(m.Bottom()) != 50000 {
		t.Errorf("runs %d, bottom %d", len(m.Runs()), base.Pages(m.Bottom()))
	}
	if sum, err := m.Sum(); err != nil || sum != 0x1122334455667788 {
		t.Errorf("%x %v", sum, err)
	}
}

func TestDamagedManifestIsRefused(t *testing.T) {
	for name, change := range map[string]func(*base.Manifest){
		"id":       func(m *base.Manifest) { m.ID = "x" },
		"checksum": func(m *base.Manifest) { m.Checksum = "11" },
		"size":     func(m *base.Manifest) { m.PageSize = 1000 },
		"slot":     func(m *base.Manifest) { m.Slot = 0 },
		"overlap":  func(m *base.Manifest) { m.Levels[1][1].First = 16384 },
		"too many": func(m *base.Manifest) { m.Levels[1][0].Pages = 16385 },
		"range":    func(m *base.Manifest) { m.Levels[0][0].From = 121 },
		"no key":   func(m *base.Manifest) { m.Levels[0][0].Key = "" },
	} {
		m := sample()
		change(m)
		b, _ := m.Encode()
		if _, err := base.Decode(b); !errors.Is(err, base.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b, _ := sample().Encode()
	newer := strings.Replace(string(b), `"format":1`, `"format":4`, 1)
	if _, err := base.Decode([]byte(newer)); !errors.Is(err, base.ErrNewer) || !strings.Contains(err.Error(), "update") {
		t.Errorf("newer format: %v", err)
	}
	for i := range b {
		if _, err := base.Decode(b[:i]); err == nil {
			t.Errorf("cut to %d bytes, it was read", i)
		}
		c := []byte(string(b))
		c[i] ^= 1
		if _, err := base.Decode(c); err == nil {
			t.Errorf("byte %d changed, it was read", i)
		}
	}
}

// model follows plans with page sets and returns the pages written per page that came in, and the most levels seen.
func model(t *testing.T, total, entries, perEntry int, pick func(*rand.Rand) uint32) (amplification float64, levels int) {
	rng := rand.New(rand.NewSource(1))
	var runs []map[uint32]bool
	var m base.Manifest
	bottom := 0
	written, came := 0, 0
	for range entries {
		fresh := map[uint32]bool{}
		for range 32 * perEntry {
			fresh[pick(rng)] = true
		}
		came += 32 * perEntry
		p := base.MakePlan(&m, len(fresh), total, 0)
		for _, r := range runs[:p.Merge] {
			for x := range r {
				fresh[x] = true
			}
		}
		runs = runs[p.Merge:]
		if p.Bottom {
			if len(runs) != 0 {
				t.Fatal("a plan for the bottom leaves runs")
			}
			chunks := map[uint32]bool{}
			for x := range fresh {
				chunks[x/4096] = true
			}
			written += min(total, len(chunks)*4096)
			bottom = total
		} else {
			runs = append([]map[uint32]bool{fresh}, runs...)
			written += len(fresh)
		}
		m.Levels = nil
		for _, r := range runs {
			m.Levels = append(m.Levels, []base.Segment{{Pages: len(r)}})
		}
		m.Levels = append(m.Levels, []base.Segment{{Pages: bottom}})
		levels = max(levels, len(m.Levels))
	}
	return float64(written) / float64(came), levels
}

func TestPlansBoundAmplificationAndLevels(t *testing.T) {
	next := uint32(0)
	for name, c := range map[string]struct {
		total int
		pick  func(*rand.Rand) uint32
		amp   float64
	}{
		"append, 10 MB":       {2500, func(r *rand.Rand) uint32 { next++; return []uint32{1, 2, 2000 + next/40%500}[next%3] }, 1},
		"random pages, 10 MB": {2500, func(r *rand.Rand) uint32 { return uint32(r.Intn(2500)) }, 3},
		"random pages, 1 GB":  {262144, func(r *rand.Rand) uint32 { return uint32(r.Intn(262144)) }, 6},
	} {
		amp, levels := model(t, c.total, 1500, 4, c.pick)
		t.Logf("%s: %.2f pages written per page, at most %d levels", name, amp, levels)
		if amp > c.amp || levels > 16 {
			t.Errorf("%s: amplification %.2f (want <= %.1f), %d levels (want <= 16)", name, amp, c.amp, levels)
		}
	}
}
