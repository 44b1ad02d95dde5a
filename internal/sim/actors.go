package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// Read makes the run's randomness an io.Reader, for nonces and ids.
func (w *world) Read(p []byte) (int, error) {
	for n := 0; n < len(p); n += 8 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], w.rnd.Uint64())
		copy(p[n:], b[:])
	}
	return len(p), nil
}

// Read counts what fence draws: the first thing an append draws is its entry's nonce.
func (a *actor) Read(p []byte) (int, error) {
	n, err := a.w.Read(p)
	if len(p) == len(nonce{}) {
		a.drawn = append(a.drawn, nonce(p))
	}
	return n, err
}

// log is this process's log of a name.
func (a *actor) log(name string) *fence.Log {
	l := a.logs[name]
	if l == nil {
		l = fence.New(client{a}, name, fence.Options{
			Owner: a.name, Rand: a, Sleep: a.sleep, Now: a.w.now,
		})
		if a.w.c.Prepare != nil {
			a.w.c.Prepare(l)
		}
		if a.logs == nil {
			a.logs, a.seen = map[string]*fence.Log{}, map[string]ownership{}
		}
		a.logs[name] = l
	}
	return l
}

// sleep is where fence waits before another try. It takes no time, but the caller's patience ends here now and then.
func (a *actor) sleep(ctx context.Context, _ time.Duration) error {
	if !a.w.calm && a.cancel != nil && a.w.chance(4) {
		a.cancel()
	}
	return ctx.Err()
}

// call runs one call of the package with a context of its own.
func (a *actor) call(f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	defer func() { a.cancel = nil; cancel() }()
	f(ctx)
}

func (a *actor) anyName() string { return a.w.names[a.w.rnd.IntN(len(a.w.names))] }

// head reads the head. nil: there is none, or it could not be read.
func (a *actor) head(name string) (e *fence.Entry, err error) {
	a.call(func(ctx context.Context) { e, err = a.log(name).Head(ctx) })
	return e, err
}

// absent is asked whenever an answer says that there is no live database: there was none at some time since the call began.
func (a *actor) absent(name string, since int, what string) {
	if h := a.w.truth[name]; h.live != (fence.ID{}) && h.bornAt <= since {
		a.w.violated("live database said to be absent", "%s of %s", what, name)
	}
}

// put writes an object under a unique key, until it is known to be there.
func (a *actor) put(ctx context.Context, key string, body []byte) error {
	for {
		_, err := client{a}.Create(ctx, key, body)
		if err == nil || errors.Is(err, remote.ErrExists) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// create is a whole creation, index record and all: empty, with some pages, or a fork.
func (a *actor) create(name string, of *fence.Source) *own {
	w, since := a.w, a.w.tick
	c := fence.CreateOptions{
		Source: of,
		Before: func(ctx context.Context, c fence.Creation) error {
			return a.put(ctx, recordKey(name, c.Slot, c.ID), []byte(name))
		},
		Undo: func(ctx context.Context, c fence.Creation) {
			_ = client{a}.Delete(ctx, recordKey(name, c.Slot, c.ID))
		},
	}
	if of == nil && w.chance(2) { // an import
		w.version++
		x := content{w.version, w.version, w.version}
		c.State, c.Whole = fence.State{PageSize: pageSize, PageCount: numPages, Checksum: uint64(w.version)}, true
		c.Payload, c.PayloadSum = w.pack(x, nil, change{pages: x, whole: true})
	}
	var o *fence.Owner
	var err error
	a.call(func(ctx context.Context) { o, err = a.log(name).Create(ctx, c) })
	w.tracef(a.name, "create %s of %+v: %v", name, of, err)
	h := w.truth[name]
	if errors.Is(err, fence.ErrTaken) && h.live == (fence.ID{}) && h.diedAt <= since {
		w.violated("absent database said to be there", "create of %s", name)
	}
	if err != nil {
		return nil
	}
	x := newOwn(o, name)
	a.inLog(x, o.Entry(), "create")
	if at := a.seen[name]; !at.is(x) {
		w.violated("stale owner told that it owns", "create of %s in slot %d; at its last request the owner was %d", name, o.Slot(), at.generation)
	}
	return a.open(x)
}

// claimed is asked whenever a claim or a rewind succeeds: it is in the log.
func (a *actor) claimed(name string, o *fence.Owner, what string) *own {
	c := newOwn(o, name)
	a.inLog(c, o.Entry(), what)
	if o.Prev() == nil || o.Prev().Sum != o.Entry().Prev {
		a.w.violated("chain broken", "%s of %s", what, name)
	}
	return c
}

func (a *actor) claim(name string, c fence.ClaimOptions) *own {
	w, since := a.w, a.w.tick
	var o *fence.Owner
	var err error
	a.call(func(ctx context.Context) { o, err = a.log(name).Claim(ctx, c) })
	w.tracef(a.name, "claim %s: %v", name, err)
	if errors.Is(err, fence.ErrNoDatabase) {
		a.absent(name, since, "claim")
	}
	if err != nil {
		return nil
	}
	w.stats.Claims++
	if c.IfClosed && w.truth[name].at(o.Generation()-1).kind != fence.Close {
		w.violated("janitor fenced an owner", "slot %d of %s", o.Generation(), name)
	}
	return a.claimed(name, o, "claim")
}

// writer opens and re-opens databases and does what an owner does.
func (a *actor) writer() {
	w := a.w
	var stale *fence.Entry // a head read long ago
	for {
		name := a.anyName()
		since := w.tick
		head, err := a.head(name)
		if err != nil {
			continue
		}
		var o *own
		if head == nil || head.Ends() {
			if head == nil {
				a.absent(name, since, "head")
			}
			if w.chance(2) || w.kept() {
				continue
			}
			o = a.create(name, nil)
		} else {
			c := fence.ClaimOptions{IfClosed: w.chance(12)}
			switch w.rnd.IntN(4) {
			case 0:
				c.Head = head
			case 1:
				if stale != nil && !stale.Ends() && w.truth[name].at(stale.Slot) != nil && w.truth[name].at(stale.Slot).nonce == stale.Nonce {
					c.Head = stale
				}
			}
			stale = head
			o = a.open(a.claim(name, c))
		}
		for o != nil && a.step(o) {
		}
	}
}

// step is one thing that an owner does. false: this process lets go of the database.
func (a *actor) step(o *own) bool {
	w := a.w
	if w.chance(2) { // time passes between two calls too
		a.pause(none)
	}
	if o.Pending() && w.chance(4) { // its collection does not wait for an answer
		a.collect(o.name, o)
		return true
	}
	n := w.rnd.IntN(12)
	if w.c.Mix.Busy {
		n = [12]int{0, 0, 3, 4, 9, 6, 7, 9, 6, 7, 10, 11}[n]
		if w.c.Mix.Wide && n == 6 {
			n = 7
		}
	}
	if w.c.Mix.Home {
		n = [12]int{0, 3, 4, 6, 6, 6, 7, 7, 7, 9, 9, 11}[n]
	}
	switch n {
	case 0, 1, 2:
		return a.synced(o, fence.Draft{Kind: fence.Commit})
	case 3:
		return a.large(o)
	case 4, 5:
		return a.synced(o, fence.Draft{})
	case 6:
		a.build(o)
		return true
	case 7, 8:
		return a.publish(o)
	case 9:
		switch w.rnd.IntN(4) {
		case 0:
			a.letGo(o)
		case 1:
			a.collect(o.name, o)
		default:
			if !a.publish(o) {
				return false
			}
			a.build(o)
		}
		return true
	case 10:
		a.pause(none)
		return true
	}
	if w.chance(2) {
		return true
	}
	if w.chance(2) {
		return false // gone without a word, whatever is pending
	}
	if !o.Pending() {
		a.synced(o, fence.Draft{Kind: fence.Close})
	}
	return false
}

// synced is Synced as the core calls fence: what is pending first, then an append, or a check when there is nothing to ship. false: the owner is no more.
func (a *actor) synced(o *own, d fence.Draft) bool {
	w, atCall := a.w, a.w.truth[o.name].ownership
	if o.Pending() && w.chance(12) {
		a.tooEarly(o)
		return o.Err() == nil
	}
	if o.Pending() {
		var e *fence.Entry
		var looked bool
		var err error
		a.call(func(ctx context.Context) { e, looked, err = o.Settle(ctx) })
		w.tracef(a.name, "settle: looked %v, %v", looked, err)
		if err != nil {
			return a.told(o, err)
		}
		if e == nil {
			w.violated("settled nothing", "%.3x of %s", o.sent, o.name)
		}
		o.took()
		a.inLog(o, e, "settle")
		a.acked(o, "settle", atCall)
		if looked && d.Kind == 0 { // R4's look was this call's own round trip
			return true
		}
	}
	if d.Kind == 0 {
		var err error
		a.call(func(ctx context.Context) { err = o.Check(ctx) })
		w.tracef(a.name, "check: %v", err)
		if err != nil {
			return a.told(o, err)
		}
		a.acked(o, "check", atCall)
		return true
	}
	var e *fence.Entry
	var err error
	w.fill(o, &d)
	a.drawn = a.drawn[:0]
	a.call(func(ctx context.Context) { e, err = o.Append(ctx, d) })
	w.tracef(a.name, "append kind %d %s: %v", d.Kind, d.Label, err)
	if len(a.drawn) > 0 {
		o.sent = a.drawn[0]
	}
	if err != nil {
		return a.told(o, err)
	}
	if e.Nonce != o.Last().Nonce || e.Nonce != o.sent || e.Label != d.Label {
		w.violated("acknowledged another entry", "%.3x of %s", o.sent, o.name)
	}
	o.took()
	a.acked(o, "append", atCall)
	return true
}

// fill gives a commit its page, and now and then a label.
func (w *world) fill(o *own, d *fence.Draft) {
	o.draft, o.going = nil, nil
	if d.Kind == fence.Base {
		o.going, o.next = o.next, nil
	}
	if d.Kind != fence.Commit {
		return
	}
	if w.chance(12) {
		d.Label = fmt.Sprintf("step %d", w.version)
	}
	if d.Payload == nil {
		x := w.write(o)
		what := change{pages: x}
		if after := x.over(o.pages); after.full() && w.chance(6) {
			x, what, d.Whole, o.whole = after, change{pages: after, whole: true}, true, true
		}
		d.Payload, d.PayloadSum = w.pack(x, nil, what)
		d.State = &fence.State{PageSize: pageSize, PageCount: numPages, Checksum: uint64(w.version)}
	}
	after := w.changes[d.PayloadSum].apply(o.pages)
	o.draft = &after
}

// write changes one page.
func (w *world) write(o *own) (c content) {
	w.version++
	c[w.rnd.IntN(numPages)] = w.version
	return c
}

// tooEarly appends while an append is pending: R1 and R2 refuse it.
func (a *actor) tooEarly(o *own) {
	w, atCall, before := a.w, a.w.truth[o.name].ownership, *o
	d := fence.Draft{Kind: fence.Commit}
	w.fill(o, &d)
	var err error
	a.drawn = a.drawn[:0]
	a.call(func(ctx context.Context) { _, err = o.Append(ctx, d) })
	w.tracef(a.name, "append while another is pending: %v", err)
	if errors.Is(err, fence.ErrPending) {
		o.sent, o.draft, o.going, o.next, o.whole = before.sent, before.draft, before.going, before.next, before.whole
		return
	}
	if len(a.drawn) > 0 {
		o.sent = a.drawn[0]
	}
	if err != nil {
		a.told(o, err)
		return
	}
	o.took()
	a.acked(o, "append", atCall)
}

// told holds an error against the truth. false: the owner is no more.
func (a *actor) told(o *own, err error) bool {
	w, h := a.w, a.w.truth[o.name]
	var fenced *fence.FencedError
	switch {
	case errors.As(err, &fenced):
		w.stats.Fenced++
		if h.is(o) {
			w.violated("fenced itself", "generation %d of %s by slot %d", o.Generation(), o.name, fenced.By.Slot)
		}
		stored := o.sent == (nonce{}) || h.has(o.sent)
		switch {
		case fenced.Stored && !stored:
			w.violated("lost commit said to be stored", "%.3x of %s", o.sent, o.name)
		case fenced.Stored:
			w.stats.Stored++
		case stored && o.sent != (nonce{}):
			w.stats.Late++
		}
		return false
	case errors.Is(err, fence.ErrClosed):
		return false
	case !o.Pending() && o.sent != (nonce{}) && !h.has(o.sent):
		w.gone[o.sent] = true // refused: it must never come to be
		o.refused()
	case errors.Is(err, remote.ErrUnknown) && !o.Pending():
		w.violated("unknown, but not pending", "%.3x of %s: %v", o.sent, o.name, err)
	}
	return true
}

// controller creates and deletes, and knows nothing of owners.
func (a *actor) controller() {
	w := a.w
	for {
		name := a.anyName()
		head, err := a.head(name)
		_, free := w.free()
		switch {
		case err != nil:
		case head == nil || head.Ends():
			if (w.c.Mix.Churn && w.chance(2) || w.chance(3)) && !w.kept() {
				a.create(name, nil)
			}
		case free && (w.c.Mix.Forks && !w.chance(4) || !w.c.Mix.Wide && w.chance(3)):
			a.fork(name, head)
		case w.c.Mix.Home && (free || !w.forked(name, head.ID)) && !w.chance(300):
		case w.c.Mix.Wide || w.chance(3) || w.c.Mix.Churn || w.c.Mix.Forks && !free:
			a.delete(name, head.ID)
		}
	}
}

func (a *actor) delete(name string, id fence.ID) {
	w := a.w
	w.asked[id] = true
	var err error
	a.call(func(ctx context.Context) { _, err = a.log(name).Delete(ctx, id) })
	w.tracef(a.name, "delete %s of %s: %v", short(id), name, err)
	if err != nil && !errors.Is(err, fence.ErrNoDatabase) {
		return
	}
	if w.truth[name].live == id {
		w.violated("delete acknowledged, still alive", "%s of %s", short(id), name)
	}
	w.stats.Deletes++
	a.call(func(ctx context.Context) {
		for _, key := range a.records(ctx, name) {
			if _, _, of, _ := parseRecord(key); of == id {
				_ = client{a}.Delete(ctx, key)
			}
		}
	})
	a.collect(name, nil)
}

func (a *actor) records(ctx context.Context, name string) (keys []string) {
	page, _, _ := client{a}.List(ctx, "names/"+name+"/", remote.ListOptions{})
	for _, i := range page {
		keys = append(keys, i.Key)
	}
	return keys
}

// rewinder goes back to some point and closes.
func (a *actor) rewinder() {
	w := a.w
	for {
		name := a.anyName()
		head, err := a.head(name)
		if err != nil || head == nil || head.Ends() || !w.chance(2) {
			a.pause(none)
			continue
		}
		to := w.somePoint(name, head)
		var o *fence.Owner
		a.call(func(ctx context.Context) {
			o, err = a.log(name).Rewind(ctx, fence.RewindOptions{ID: head.ID, To: to})
		})
		w.tracef(a.name, "rewind %s to %d: %v", name, to, err)
		if errors.Is(err, fence.ErrNoDatabase) && w.truth[name].live == head.ID {
			w.violated("live database said to be absent", "rewind of %s", name)
		}
		if err != nil {
			continue
		}
		w.stats.Rewinds++
		a.synced(a.claimed(name, o, "rewind"), fence.Draft{Kind: fence.Close})
	}
}

// janitor ends what was left half made.
func (a *actor) janitor() {
	for {
		a.pause(none)
		switch n := a.anyName(); a.w.rnd.IntN(4) {
		case 0:
			a.tidy(n)
		case 1:
			a.sweep(n)
		default:
			a.letGoAll(n)
		}
	}
}

// tidy is what gc.Records does, with Abandon's answers held against the truth.
func (a *actor) tidy(name string) {
	w := a.w
	a.call(func(ctx context.Context) {
		for _, key := range a.records(ctx, name) {
			_, slot, id, ok := parseRecord(key)
			if !ok {
				continue
			}
			// That slot first, the head after.
			made, err := a.log(name).Abandon(ctx, id, slot)
			w.tracef(a.name, "abandon %s in slot %d of %s: made %v, %v", short(id), slot, name, made, err)
			if err != nil {
				continue
			}
			if f := w.truth[name].at(slot); made != (f != nil && f.kind == fence.Create && f.id == id) {
				w.violated("abandon tells the wrong thing", "%s in slot %d of %s: made %v", short(id), slot, name, made)
			}
			if !made {
				w.never[id] = true
			}
			head, err := a.log(name).Head(ctx)
			if err != nil || made && head != nil && head.ID == id && !head.Ends() {
				continue
			}
			_ = client{a}.Delete(ctx, key)
		}
	})
}

// lastOwner takes a live database over when everything has come to rest: the log is as the truth says, can be appended to, and compacted.
func (a *actor) lastOwner(name string) {
	w, h := a.w, a.w.truth[name]
	head, err := a.head(name)
	switch {
	case err != nil:
		w.violated("cannot be read", "%s: %v", name, err)
		return
	case head == nil:
		if h.tail() != 0 {
			w.violated("lost", "%s has no head, slot %d in truth", name, h.tail())
		}
		return
	case head.Slot != h.tail() || nonce(head.Nonce) != h.at(head.Slot).nonce:
		w.violated("lost", "the head of %s is slot %d, %d in truth", name, head.Slot, h.tail())
		return
	case head.Ends():
		return
	}
	o := a.open(a.claim(name, fence.ClaimOptions{}))
	if o == nil || !a.synced(o, fence.Draft{Kind: fence.Commit}) || !a.synced(o, fence.Draft{}) {
		w.violated("cannot be taken over", "%s", name)
		return
	}
	a.build(o)
	if o.next == nil || !a.publish(o) {
		w.violated("cannot be compacted", "%s", name)
		return
	}
	a.claim(name, fence.ClaimOptions{}) // what the generation before left is garbage now
}

func kindOf(o object) fence.Kind {
	h, _, err := segment.DecodeHeader(o.body)
	if err != nil {
		return 0
	}
	return fence.Kind(h.Kind)
}
