package gc_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/gc"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a store in memory that counts, refuses deletes, and lets a test come between.
type store struct {
	remote.Store
	denied string // kind of key whose deletion is refused

	mu    sync.Mutex
	calls map[string]int
	on    func(op, key string)
}

func newStore() *store { return &store{Store: mem.New("gc"), calls: map[string]int{}} }

func (s *store) ask(op, key string) {
	s.mu.Lock()
	s.calls[op]++
	on := s.on
	s.mu.Unlock()
	if on != nil {
		on(op, key)
	}
}

func (s *store) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	s.ask("GET", key)
	return s.Store.Get(ctx, key, o)
}

func (s *store) List(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	s.ask("LIST", prefix)
	return s.Store.List(ctx, prefix, o)
}

func (s *store) Delete(ctx context.Context, key string) error {
	s.ask("DELETE", key)
	if s.denied != "" && strings.Contains(key, s.denied) {
		return &remote.Error{Op: "delete", Store: s.String(), Key: key, Kind: remote.ErrDenied, Status: 403}
	}
	return s.Store.Delete(ctx, key)
}

// keys lists the keys that contain part.
func (s *store) keys(t *testing.T, part string) (keys []string) {
	t.Helper()
	page, _, err := s.Store.List(t.Context(), "", remote.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range page {
		if strings.Contains(i.Key, part) {
			keys = append(keys, i.Key)
		}
	}
	return keys
}

// db is an owner with a database of three pages.
type db struct {
	*fence.Owner
	t     *testing.T
	s     *store
	name  string
	m     *base.Manifest
	nonce byte
}

func opened(t *testing.T, s *store, name string, o *fence.Owner, err error) *db {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return &db{Owner: o, t: t, s: s, name: name}
}

func created(t *testing.T, s *store, name string) *db {
	t.Helper()
	o, err := fence.New(s, name, fence.Options{}).Create(t.Context(), fence.CreateOptions{})
	return opened(t, s, name, o, err)
}

func claimed(t *testing.T, s *store, name string) *db {
	t.Helper()
	o, err := fence.New(s, name, fence.Options{}).Claim(t.Context(), fence.ClaimOptions{})
	return opened(t, s, name, o, err)
}

func forked(t *testing.T, s *store, name string, of fence.Source) *db {
	t.Helper()
	o, err := fence.New(s, name, fence.Options{}).Create(t.Context(), fence.CreateOptions{Source: &of})
	return opened(t, s, name, o, err)
}

func (d *db) delete() {
	d.t.Helper()
	if _, err := fence.New(d.s, d.name, fence.Options{}).Delete(d.t.Context(), d.ID()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *db) append(draft fence.Draft) *fence.Entry {
	d.t.Helper()
	e, err := d.Append(d.t.Context(), draft)
	if err != nil {
		d.t.Fatal(err)
	}
	return e
}

func (d *db) put(key string, body []byte) {
	d.t.Helper()
	if err := remote.CreateUnique(d.t.Context(), d.s, key, body); err != nil {
		d.t.Fatal(err)
	}
}

var state = &fence.State{PageSize: 512, PageCount: 3, Checksum: 1}

func pack(t *testing.T, refs ...segment.Ref) (payload []byte, sum uint64) {
	t.Helper()
	w := segment.NewWriter(512)
	for _, r := range refs {
		if err := w.AddRef(r); err != nil {
			t.Fatal(err)
		}
	}
	if len(refs) == 0 {
		for p := range uint32(3) {
			if err := w.Add(p+1, make([]byte, 512)); err != nil {
				t.Fatal(err)
			}
		}
	}
	payload, sum, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return payload, sum
}

// segment uploads one of the owner's generation.
func (d *db) segment() base.Segment {
	d.t.Helper()
	payload, sum := pack(d.t)
	d.nonce++
	h := segment.Header{
		Kind: segment.KindSegment, ID: d.ID(), Generation: d.Generation(), Slot: d.Slot(), From: 1, Nonce: [16]byte{d.nonce},
		PageSize: 512, PageCount: 3, PayloadSize: int64(len(payload)), PayloadSum: sum,
	}
	b, err := segment.EncodeHeader(nil, &h)
	if err != nil {
		d.t.Fatal(err)
	}
	b = append(b, payload...)
	key := fmt.Sprintf("db/%s/seg/%016x-%x", d.name, h.Generation, h.Nonce)
	d.put(key, b)
	return base.Segment{Key: key, First: 1, Last: 3, Pages: 3, From: 1, Slot: d.Slot(), Size: int64(len(b))}
}

func (d *db) commit(label string) *fence.Entry {
	d.t.Helper()
	payload, sum := pack(d.t)
	return d.append(fence.Draft{Kind: fence.Commit, State: state, Payload: payload, PayloadSum: sum, Label: label})
}

// large commits pages that are in a segment, whose key it returns.
func (d *db) large(label string) string {
	d.t.Helper()
	s := d.segment()
	payload, sum := pack(d.t, segment.Ref{Key: s.Key, First: 1, Last: 3, Pages: 3, Size: s.Size})
	d.append(fence.Draft{Kind: fence.Commit, State: state, Payload: payload, PayloadSum: sum, Label: label})
	return s.Key
}

// base publishes one over levels, or over a new segment, that raises the horizon to its own slot.
func (d *db) base(levels ...[]base.Segment) string {
	d.t.Helper()
	if levels == nil {
		levels = [][]base.Segment{{d.segment()}}
	}
	d.nonce++
	d.m = &base.Manifest{ID: d.ID().String(), Generation: d.Generation(), Slot: d.Slot(), PageSize: 512, PageCount: 3, Checksum: base.SumString(1), Levels: levels}
	b, err := d.m.Encode()
	if err != nil {
		d.t.Fatal(err)
	}
	key := fmt.Sprintf("db/%s/base/%016x-%016x-%032x", d.name, d.Slot(), d.Generation(), d.nonce)
	d.put(key, b)
	d.append(fence.Draft{Kind: fence.Base, Base: key, BaseSlot: d.Slot(), Horizon: d.Slot() + 1})
	return key
}

// at is options under which so much time has passed.
func at(later time.Duration) gc.Options {
	return gc.Options{Now: func() time.Time { return time.Now().Add(later) }}
}

// now is options without any grace.
func now() gc.Options { return gc.ForTest(gc.Options{Grace: -1}, "", 0) }

func collected(t *testing.T, s remote.Store, name string, o gc.Options) *gc.Report {
	t.Helper()
	r, err := gc.Collect(t.Context(), s, name, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func let(t *testing.T, s remote.Store, name string, o gc.Options) int {
	t.Helper()
	r, err := gc.Pins(t.Context(), s, name, o)
	if err != nil {
		t.Fatal(err)
	}
	return r.Pins
}
