package sim

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// op is a kind of request.
type op int

const (
	none op = iota
	create
	get
	list
	remove
)

// object is what the store holds at a key.
type object struct {
	key  string
	body []byte
	etag string
	time int // tick
}

// objects is the store, sorted by key.
type objects []object

func (s objects) find(key string) (int, bool) {
	return slices.BinarySearchFunc(s, key, func(o object, k string) int { return strings.Compare(o.key, k) })
}

// request is one that the network holds back.
type request struct {
	op   op
	key  string
	body []byte
}

// next picks the held request that lands now; -1: none. With Ghosts creates wait for their slot to be collected, mostly.
func (w *world) next(oneIn int) int {
	if len(w.held) == 0 || !w.chance(oneIn) {
		return -1
	}
	i := w.rnd.IntN(len(w.held))
	if !w.c.Mix.Ghosts {
		return i
	}
	for j := range w.held {
		if r := w.held[(i+j)%len(w.held)]; r.op == remove || w.collected(r.key) || w.chance(20) {
			return (i + j) % len(w.held)
		}
	}
	return -1
}

// collected tells whether a key is that of a slot that was filled and is empty again.
func (w *world) collected(key string) bool {
	slot, ok := fence.ParseSlotKey(key)
	return ok && slot <= w.truth[strings.Split(key, "/")[1]].tail() && w.at(key) == nil
}

func (w *world) land(i int) {
	r := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	var done bool
	if r.op == create {
		done = w.put(r.key, r.body)
	} else {
		done = w.remove(r.key)
	}
	w.tracef("", "held request on %s lands: %v", w.short(r.key), done)
}

// put applies a create-if-absent.
func (w *world) put(key string, body []byte) bool {
	w.tick++
	i, ok := w.store.find(key)
	if ok {
		return false
	}
	var sum [8]byte
	for j, x := 0, xxhash.Sum64(body); j < 8; j, x = j+1, x>>8 {
		sum[j] = byte(x)
	}
	w.store = slices.Insert(w.store, i, object{key, body, hex.EncodeToString(sum[:]), w.tick})
	w.filled(key, body)
	return true
}

func (w *world) remove(key string) bool {
	w.tick++
	i, ok := w.store.find(key)
	if ok {
		w.store = slices.Delete(w.store, i, i+1)
		w.removed++
	}
	return ok
}

// at returns the object at a key, or nil.
func (w *world) at(key string) *object {
	i, ok := w.store.find(key)
	if !ok {
		return nil
	}
	return &w.store[i]
}

// short names a key in traces: the slot in decimal.
func (w *world) short(key string) string {
	if slot, ok := fence.ParseSlotKey(key); ok {
		return key[:strings.LastIndexByte(key, '/')+1] + itoa(slot)
	}
	return key
}

// client is the store as one actor's process sees it: remote.Store with a bad network in between.
type client struct{ a *actor }

var _ remote.Store = client{}

var (
	errNetwork = errors.New("connection reset")
	errStatus  = errors.New("internal error")
)

func (c client) fail(op, key string, kind, err error) error {
	e := &remote.Error{Op: op, Store: c.String(), Key: key, Kind: kind, Err: err}
	if err == errStatus && c.a.w.chance(2) {
		e.RetryAfter = time.Second
	}
	return e
}

// unknown ends the caller's patience now and then: a deadline in the middle of a request.
func (c client) unknown(ctx context.Context, key string) error {
	w := c.a.w
	if c.a.cancel != nil && w.chance(6) {
		c.a.cancel()
		return c.fail("create", key, remote.ErrUnknown, ctx.Err())
	}
	if w.chance(2) {
		return c.fail("create", key, remote.ErrUnknown, errStatus)
	}
	return c.fail("create", key, remote.ErrUnknown, errNetwork)
}

func (c client) Create(ctx context.Context, key string, body []byte) (string, error) {
	w, who := c.a.w, c.a.name
	_, isSlot := fence.ParseSlotKey(key)
	if !w.c.Mix.Wide || isSlot { // there only the log matters
		c.a.pause(create)
	}
	if err := ctx.Err(); err != nil {
		return "", c.fail("create", key, remote.ErrUnknown, err)
	}
	w.stats.Requests++
	fault := 99
	if !w.calm && (!w.c.Mix.Wide || isSlot) {
		fault = w.rnd.IntN(40)
	}
	switch {
	case fault < 99 && w.c.Mix.Ghosts && isSlot && takesOver(body) && !w.chance(3):
		w.held = append(w.held, request{create, key, body})
		w.tracef(who, "PUT %s held, and dies", w.short(key))
		c.a.crash = true
		w.stats.Crashes++
		c.a.pause(none) // does not return
	case fault < 4:
		w.tracef(who, "PUT %s lost", w.short(key))
		return "", c.unknown(ctx, key)
	case fault < 8:
		w.held = append(w.held, request{create, key, body})
		w.tracef(who, "PUT %s held", w.short(key))
		return "", c.unknown(ctx, key)
	case fault < 10:
		done := w.put(key, body)
		w.tracef(who, "PUT %s applied (%v), answer lost", w.short(key), done)
		c.a.sees(key)
		return "", c.unknown(ctx, key)
	case fault < 12:
		done := w.put(key, body)
		w.tracef(who, "PUT %s applied (%v), repeated by a proxy: exists", w.short(key), done)
		c.a.sees(key)
		return "", c.fail("create", key, remote.ErrExists, nil)
	case fault < 13:
		w.tracef(who, "PUT %s refused", w.short(key))
		return "", c.fail("create", key, remote.ErrDenied, nil)
	}
	done := w.put(key, body)
	c.a.sees(key)
	if !done {
		w.tracef(who, "PUT %s exists", w.short(key))
		return "", c.fail("create", key, remote.ErrExists, nil)
	}
	w.tracef(who, "PUT %s ok", w.short(key))
	i, _ := w.store.find(key)
	return w.store[i].etag, nil
}

func (c client) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	w := c.a.w
	sweeps := c.a.sweeps()
	if !sweeps || c.a.had == list || w.chance(10) { // a collector reads much that cannot change
		c.a.pause(get)
	}
	if err := ctx.Err(); err != nil {
		return remote.Object{}, c.fail("get", key, nil, err)
	}
	w.stats.Requests++
	if !w.calm && w.chance(40) && (!sweeps || w.chance(8)) {
		w.tracef(c.a.name, "GET %s fails", w.short(key))
		return remote.Object{}, c.fail("get", key, nil, errNetwork)
	}
	w.tick++
	c.a.sees(key)
	i, ok := w.store.find(key)
	if !ok {
		w.tracef(c.a.name, "GET %s absent", w.short(key))
		return remote.Object{}, c.fail("get", key, remote.ErrNotFound, nil)
	}
	w.tracef(c.a.name, "GET %s: %s", w.short(key), describe(w.store[i]))
	if _, isSlot := fence.ParseSlotKey(key); isSlot {
		k := kindOf(w.store[i])
		c.a.end = k == fence.Delete || k == fence.Void
	}
	obj := remote.Object{Info: w.store[i].info(), Body: w.store[i].body}
	if o.IfMatch != "" && o.IfMatch != obj.ETag {
		return remote.Object{}, c.fail("get", key, remote.ErrChanged, nil)
	}
	if o.Offset < 0 {
		obj.Body = obj.Body[max(0, obj.Size+o.Offset):]
	}
	if o.Length > 0 && o.Length < obj.Size {
		obj.Body = obj.Body[:o.Length]
	}
	return obj, nil
}

// takesOver tells of an entry that follows whatever is the head: late, it finds its slot taken, and becomes a ghost once that is collected.
func takesOver(body []byte) bool {
	h, _, err := segment.DecodeHeader(body)
	must(err)
	k := fence.Kind(h.Kind)
	return k == fence.Claim || k == fence.Rewind || k == fence.Delete
}

// sweeps tells whether the actor is a collector or a janitor.
func (a *actor) sweeps() bool { return a.name[0] == 'G' || a.name[0] == 'J' }

func (o object) info() remote.Info {
	return remote.Info{Key: o.key, Size: int64(len(o.body)), ETag: o.etag, Time: time.Unix(int64(o.time), 0)}
}

func (c client) List(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	w := c.a.w
	if !c.a.sweeps() || o.Max == 1 || w.c.Mix.Forks || w.chance(10) { // and most of its LISTs matter to forks alone
		c.a.pause(list)
	}
	if err := ctx.Err(); err != nil {
		return nil, false, c.fail("list", prefix, nil, err)
	}
	w.stats.Requests++
	if !w.calm && w.chance(40) {
		w.tracef(c.a.name, "LIST %s fails", prefix)
		return nil, false, c.fail("list", prefix, nil, errNetwork)
	}
	w.tick++
	c.a.sees(prefix)
	if w.c.Mix.Torn && !w.calm && strings.HasSuffix(prefix, "/log/") && w.chance(2) {
		return c.torn(ctx, prefix, o)
	}
	var page []remote.Info
	i, _ := w.store.find(max(prefix, o.After))
	for ; i < len(w.store) && strings.HasPrefix(w.store[i].key, prefix); i++ {
		if w.store[i].key == o.After {
			continue
		}
		if o.Max > 0 && len(page) == o.Max {
			return page, true, nil
		}
		page = append(page, w.store[i].info())
		if len(page) == 1 {
			w.tracef(c.a.name, "LIST %s: %s", prefix, describe(w.store[i]))
		}
	}
	if len(page) == 0 {
		w.tracef(c.a.name, "LIST %s: nothing", prefix)
	}
	return page, false, nil
}

// longestList is how long a LIST takes at most, in ticks: a longer one is cut off.
const longestList = 150 * time.Second

// torn is a LIST that sees the keys up to one of them, then, while others go on, the rest; or the other way round.
func (c client) torn(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	w, began := c.a.w, c.a.w.now()
	w.stats.Torn++
	var keys []string
	for _, x := range w.store {
		if strings.HasPrefix(x.key, prefix) {
			keys = append(keys, x.key)
		}
	}
	cut := prefix
	if len(keys) > 0 {
		cut = keys[w.rnd.IntN(len(keys))]
		if head, ok := fence.ParseSlotKey(keys[0]); ok && !w.chance(4) { // just above the head: what comes meanwhile is not seen
			cut = fence.SlotKey(strings.Split(prefix, "/")[1], head+1)
		}
	}
	firstPart := w.chance(5)
	var seen []remote.Info
	take := func(above bool) {
		for _, x := range w.store {
			if strings.HasPrefix(x.key, prefix) && x.key > o.After && (x.key > cut) == above {
				seen = append(seen, x.info())
			}
		}
	}
	take(firstPart)
	c.a.tearing = true
	for range w.rnd.IntN(5) {
		c.a.pause(list)
	}
	c.a.tearing = false
	if err := ctx.Err(); err != nil || w.now().Sub(began) >= longestList {
		return nil, false, c.fail("list", prefix, nil, errNetwork)
	}
	take(!firstPart)
	slices.SortFunc(seen, func(a, b remote.Info) int { return strings.Compare(a.Key, b.Key) })
	w.tracef(c.a.name, "LIST %s, torn at %s: %d keys", prefix, w.short(cut), len(seen))
	if o.Max > 0 && len(seen) > o.Max {
		return seen[:o.Max], true, nil
	}
	return seen, false, nil
}

func (c client) Swap(_ context.Context, key, _ string, _ []byte) (string, error) {
	return "", c.fail("swap", key, remote.ErrUnfit, nil)
}

func (c client) Delete(ctx context.Context, key string) error {
	c.a.pause(remove)
	w := c.a.w
	if err := ctx.Err(); err != nil {
		return c.fail("delete", key, nil, err)
	}
	w.stats.Requests++
	fault := 99
	if !w.calm {
		fault = w.rnd.IntN(20)
	}
	switch {
	case fault < 1:
		w.tracef(c.a.name, "DELETE %s lost", w.short(key))
		return c.fail("delete", key, nil, errNetwork)
	case fault < 4: // held; or applied, and once more later on
		w.held = append(w.held, request{remove, key, nil})
		w.tracef(c.a.name, "DELETE %s held", w.short(key))
		if fault == 3 {
			w.remove(key)
		}
		return nil
	}
	done := w.remove(key)
	w.tracef(c.a.name, "DELETE %s: %v", w.short(key), done)
	return nil
}

func (c client) String() string { return "sim://" }
