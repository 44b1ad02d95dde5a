package fence_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/sim"
	"github.com/tonbo-go/tonbo/remote"
)

func TestNewestSlotListsFirst(t *testing.T) {
	var keys []string
	for _, slot := range []uint64{1, 2, 15, 16, 255, 1 << 32, 1<<64 - 2, 1<<64 - 1} {
		key := fence.SlotKey("db1", slot)
		if got, ok := fence.ParseSlotKey(key); !ok || got != slot {
			t.Errorf("%s: got %d, %v", key, got, ok)
		}
		keys = append(keys, key)
	}
	if slices.Reverse(keys); !slices.IsSorted(keys) {
		t.Errorf("got %q", keys)
	}
	if got, want := fence.SlotKey("db1", 1), "db/db1/log/fffffffffffffffe"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, key := range []string{
		"", "x", "db/db1/log/", "db/db1/log/ffffffffffffffff", "db/db1/log/FFFFFFFFFFFFFFFE", "db/db1/log/fffffffffffffffe0", "db/db1/log/fffffffffffffff",
		"db/db1/base/fffffffffffffffe", "db//log/fffffffffffffffe", "names/db1/log/fffffffffffffffe", "db/a/b/log/fffffffffffffffe", "db/db1/log/+ffffffffffffffe",
	} {
		if slot, ok := fence.ParseSlotKey(key); ok {
			t.Errorf("%q: got %d", key, slot)
		}
	}
}

func TestReadGivesBackWhatWasAppended(t *testing.T) {
	_, l, o := created(t)
	payload := bytes.Repeat([]byte("pages"), 30000) // longer than what a header's read fetches
	d := fence.Draft{Kind: fence.Commit, State: &fence.State{PageSize: 4096, PageCount: 7, Checksum: 8}, Payload: payload, PayloadSum: 9, Whole: true, Label: "step-7"}
	want := must(t, o, d)
	got, err := l.Read(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Payload, payload) {
		t.Error("another payload")
	}
	got.Payload = nil
	if !got.Time.Equal(want.Time) {
		t.Errorf("time: got %v, want %v", got.Time, want.Time)
	}
	got.Time = want.Time
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	_, err = l.Read(t.Context(), 3)
	wantErr(t, err, remote.ErrNotFound)
	if err := o.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// Whatever a slot holds that is not its entry is found, named, and never acted upon.
func TestDamagedEntryIsNamed(t *testing.T) {
	s, l, o := created(t)
	must(t, o, commit())
	key := fence.SlotKey("db1", 2)
	whole := slices.Clone(s.m[key])
	header := len(whole) - 100
	version := slices.Clone(whole)
	version[8] = 99
	binary.LittleEndian.PutUint64(version[header-8:], xxhash.Sum64(version[:header-8]))
	bad := map[string][]byte{
		"empty": {}, "longer": append(slices.Clone(whole), 0), "another slot's": s.m[fence.SlotKey("db1", 1)], "newer version": version, "text": []byte("<html>not found</html>"),
	}
	for i := range header {
		b := slices.Clone(whole)
		b[i] ^= 0x40
		bad[fmt.Sprintf("byte %d flipped", i)] = b
	}
	for i := range 16 {
		bad[fmt.Sprintf("cut at %d/16", i)] = whole[:len(whole)*i/16]
	}
	for what, body := range bad {
		s.m[key] = body
		for call, f := range map[string]func() error{
			"read":  func() error { _, err := l.Read(t.Context(), 2); return err },
			"head":  func() error { _, err := l.Head(t.Context()); return err },
			"claim": func() error { _, err := l.Claim(t.Context(), fence.ClaimOptions{}); return err },
			"check": func() error { return stale(t, s, o).Check(t.Context()) },
		} {
			err, want := f(), fence.ErrDamaged
			if what == "newer version" {
				want = fence.ErrNewer
			}
			if !errors.Is(err, want) || !strings.Contains(err.Error(), key) {
				t.Errorf("%s, %s: got %v", what, call, err)
			}
			if what == "newer version" && !strings.Contains(err.Error(), "update") {
				t.Errorf("got %v", err)
			}
		}
	}
	if len(s.m) != 2 {
		t.Errorf("%d objects: something was written behind the damage", len(s.m))
	}
	s.m[key] = whole
	if err := o.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// stale is an owner at slot 1 of s, though slot 2 is filled.
func stale(t *testing.T, s *store, o *fence.Owner) *fence.Owner {
	t.Helper()
	c := newStore()
	p, err := fence.New(c, "db1", instant("stale")).Create(t.Context(), fence.CreateOptions{ID: o.ID()})
	if err != nil {
		t.Fatal(err)
	}
	c.m = s.m
	return p
}

// A damaged entry in the slot that an append aims at settles nothing: ours may be what was damaged.
func TestDamagedSlotLeavesTheAppendPending(t *testing.T) {
	s, _, o := created(t)
	s.m[fence.SlotKey("db1", 2)] = []byte("damaged")
	_, err := o.Append(t.Context(), commit())
	wantErr(t, err, fence.ErrDamaged, remote.ErrUnknown)
	if !o.Pending() {
		t.Error("not pending")
	}
}

func TestForeignObjectInTheLogIsNamed(t *testing.T) {
	s, l, _ := created(t)
	s.m["db/db1/log/00-notes.txt"] = []byte("x")
	_, err := l.Head(t.Context())
	if !errors.Is(err, fence.ErrDamaged) || !strings.Contains(err.Error(), "00-notes.txt") {
		t.Errorf("got %v", err)
	}
}

// A store whose LIST and GET never agree on an object's entity tag is refused, instead of being asked for ever.
func TestStoreWithTwoTagsIsUnfit(t *testing.T) {
	s, _, _ := created(t)
	_, err := fence.New(quoted{s}, "db1", instant("x")).Head(t.Context())
	wantErr(t, err, remote.ErrUnfit)
}

type quoted struct{ *store }

func (q quoted) List(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	page, more, err := q.store.List(ctx, prefix, o)
	for i := range page {
		page[i].ETag = `"` + page[i].ETag + `"`
	}
	return page, more, err
}

// Tail: the slots that a reader needs above the base or the newest whole entry.
func TestTail(t *testing.T) {
	_, l, o := created(t)
	tail := func(what string, e *fence.Entry, want ...uint64) {
		t.Helper()
		got, err := l.Read(t.Context(), e.Slot)
		if err != nil {
			t.Fatal(err)
		}
		if (got.Tail == nil) != (want == nil) || !slices.Equal(got.Tail, want) {
			t.Errorf("%s in slot %d: got %v, want %v", what, e.Slot, got.Tail, want)
		}
	}
	whole := commit()
	whole.Whole = true
	none := []uint64{}
	tail("create", o.Entry(), none...)
	tail("commit", must(t, o, commit()), none...)
	tail("commit", must(t, o, commit()), 2)
	tail("whole", must(t, o, whole), 2, 3)
	tail("behind whole", must(t, o, commit()), 4)
	tail("empty", must(t, o, fence.Draft{Kind: fence.Commit}), 4, 5)
	o = claimed(t, l)
	tail("claim", o.Entry(), 4, 5)
	tail("commit", must(t, o, commit()), 4, 5)
	d := fence.Draft{Kind: fence.Base, Base: "b", BaseSlot: 7, Horizon: 1}
	tail("base over 7", must(t, o, d), 8)
	p, err := l.Rewind(t.Context(), fence.RewindOptions{To: 5})
	if err != nil {
		t.Fatal(err)
	}
	tail("rewind", p.Entry(), 4, 5)
	for range fence.MaxTail - 2 {
		must(t, p, commit())
	}
	e := must(t, p, commit())
	if len(e.Tail) != fence.MaxTail {
		t.Errorf("%d slots", len(e.Tail))
	}
	tail("too many", must(t, p, commit()))
	tail("too many", must(t, p, fence.Draft{Kind: fence.Close}))
	q := claimed(t, l)
	tail("too many", q.Entry())
	e = must(t, q, commit())
	tail("base over the claim", must(t, q, fence.Draft{Kind: fence.Base, Base: "b", BaseSlot: q.Generation(), Horizon: 1}), e.Slot)
}

// One seed, one run.
func TestSimulationIsDeterministic(t *testing.T) {
	for seed := range int64(8) {
		var runs [2][]string
		for i := range runs {
			sim.Run(sim.Config{Seed: seed, Prepare: fence.Serial, Trace: func(line string) { runs[i] = append(runs[i], line) }})
		}
		if len(runs[0]) == 0 || !slices.Equal(runs[0], runs[1]) {
			t.Errorf("seed %d gives two runs", seed)
		}
	}
}
