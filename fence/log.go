package fence

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// Options of a Log. The zero value works.
type Options struct {
	Owner    string                                           // who we are, shown to whoever is fenced; default ""
	Now      func() time.Time                                 // default time.Now; for messages and history, decides nothing
	Rand     io.Reader                                        // nonces and ids; default crypto/rand
	RetryMin time.Duration                                    // first wait before a request whose outcome is unknown is sent again; default 50 ms
	RetryMax time.Duration                                    // longest wait, unless the store asks for more; default 2 s
	Sleep    func(ctx context.Context, d time.Duration) error // waits, or returns ctx's error; default a timer
	Logger   *slog.Logger                                     // repeated requests, at debug level; default none
}

// Log is the log of one name. Safe for concurrent use.
type Log struct {
	store  remote.Store
	name   string
	o      Options
	broken rule // set by the model test alone
	serial bool // likewise: one request after the other
}

// New returns the log of name in s. It sends no request. The name's form is the caller's to check.
func New(s remote.Store, name string, o Options) *Log {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.RetryMin <= 0 {
		o.RetryMin = 50 * time.Millisecond
	}
	if o.RetryMax <= 0 {
		o.RetryMax = 2 * time.Second
	}
	o.RetryMax = max(o.RetryMin, o.RetryMax)
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Log{store: s, name: name, o: o}
}

// sibling is the log of another name in the same store.
func (l *Log) sibling(name string) *Log {
	s := *l
	s.name = name
	return &s
}

// together runs two parts of a call that need nothing of each other at once, and returns one's error.
func (l *Log) together(a, b func() error) error {
	if l.serial {
		if err := a(); err != nil {
			return err
		}
		return b()
	}
	other := make(chan error, 1)
	go func() { other <- b() }()
	err := a()
	if berr := <-other; err == nil {
		err = berr
	}
	return err
}

// Name returns the name whose log it is.
func (l *Log) Name() string { return l.name }

// SlotKey is the key of a slot: 16 hexadecimal digits of 2^64-1 minus the slot, so that the newest slot lists first.
func SlotKey(name string, slot uint64) string {
	return fmt.Sprintf("%s%016x", LogPrefix(name), ^slot)
}

// ParseSlotKey is SlotKey's inverse. ok is false for any other key, and for slot 0, which does not exist.
func ParseSlotKey(key string) (slot uint64, ok bool) {
	i := strings.LastIndexByte(key, '/') + 1
	dir, isDB := strings.CutPrefix(key[:i], "db/")
	name, isLog := strings.CutSuffix(dir, "/log/")
	digits := key[i:]
	if !isDB || !isLog || name == "" || strings.Contains(name, "/") || len(digits) != 16 || strings.ToLower(digits) != digits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	return ^n, err == nil && ^n != 0
}

// LogPrefix is what the keys of all slots of a name begin with.
func LogPrefix(name string) string { return "db/" + name + "/log/" }

// Head reads the head: the entry in the highest filled slot, payload included, be it a delete or a void. It is nil when there is no slot: the name
// was never used. Two requests.
func (l *Log) Head(ctx context.Context) (*Entry, error) {
	return l.head(ctx, remote.GetOptions{}, nil)
}

// HeadThen is Head; there is called when LIST has found a slot, before it is read: what may begin beside that begins in it.
func (l *Log) HeadThen(ctx context.Context, there func()) (*Entry, error) {
	return l.head(ctx, remote.GetOptions{}, there)
}

// HeadHeader is Head without the payload. Two requests.
func (l *Log) HeadHeader(ctx context.Context) (*Entry, error) {
	return l.head(ctx, headerOnly, nil)
}

// headerOnly reads as much of an entry as holds its header, but for a few.
var headerOnly = remote.GetOptions{Length: 4 << 10}

func (l *Log) head(ctx context.Context, o remote.GetOptions, there func()) (*Entry, error) {
	var last [2]string
	same := 0
	for try := 0; ; try++ {
		// 1. LIST: the newest slot, and which object it holds.
		slot, etag, err := l.top(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the head of %q: %w", l.name, err)
		}
		if slot == 0 {
			return nil, nil
		}
		if there != nil && try == 0 {
			there()
		}
		// 2. GET it.
		e, err := l.read(ctx, slot, o)
		switch {
		case err == nil && (e.ETag == etag || l.broken == headNotCompared):
			return e, nil
		case errors.Is(err, remote.ErrNotFound) && l.broken == listedHeadGone:
			return nil, nil
		case err != nil && !errors.Is(err, remote.ErrNotFound):
			return nil, fmt.Errorf("read the head of %q: %w", l.name, err)
		}
		// 3. Collected since the LIST, or even filled again by a stalled writer's ghost: look again. A store whose LIST and GET name one
		// object differently would keep us here for ever.
		if err == nil {
			if seen := [2]string{etag, e.ETag}; seen != last {
				last, same = seen, 0
			}
			if same++; same == 8 {
				return nil, fmt.Errorf("read the head of %q: %w: %s: LIST and GET of %s give different entity tags (%s, %s)",
					l.name, remote.ErrUnfit, l.store, SlotKey(l.name, slot), etag, e.ETag)
			}
		}
		if err := l.wait(ctx, try, nil); err != nil {
			return nil, fmt.Errorf("read the head of %q: %w", l.name, err)
		}
	}
}

// top is the LIST: the highest filled slot and its entity tag, 0 when there is none.
func (l *Log) top(ctx context.Context) (slot uint64, etag string, err error) {
	page, _, err := l.store.List(ctx, LogPrefix(l.name), remote.ListOptions{Max: 1})
	if err != nil || len(page) == 0 {
		return 0, "", err
	}
	slot, ok := ParseSlotKey(page[0].Key)
	if !ok {
		return 0, "", fmt.Errorf("%w: %s/%s is not a log slot: move it away", ErrDamaged, l.store, page[0].Key)
	}
	return slot, page[0].ETag, nil
}

// Read reads one slot, payload included. remote.ErrNotFound when it is absent: not written yet, or collected. ErrDamaged names the object when it
// is not the entry of that slot.
func (l *Log) Read(ctx context.Context, slot uint64) (*Entry, error) {
	return l.read(ctx, slot, remote.GetOptions{})
}

// ReadHeader is Read without the payload: what R2, R4 and R6 need.
func (l *Log) ReadHeader(ctx context.Context, slot uint64) (*Entry, error) {
	return l.read(ctx, slot, headerOnly)
}

func (l *Log) read(ctx context.Context, slot uint64, o remote.GetOptions) (*Entry, error) {
	key := SlotKey(l.name, slot)
	obj, err := l.store.Get(ctx, key, o)
	if err != nil {
		return nil, err
	}
	e, err := decode(obj, slot, o.Length == 0)
	var short *segment.ShortError
	if errors.As(err, &short) && o.Length > 0 && o.Length < segment.MaxHeader && obj.Size > o.Length {
		return l.read(ctx, slot, remote.GetOptions{Length: segment.MaxHeader})
	}
	switch {
	case errors.Is(err, segment.ErrNewer):
		return nil, fmt.Errorf("%w: %s/%s: %w", ErrNewer, l.store, key, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %s/%s: %w", ErrDamaged, l.store, key, err)
	}
	return e, nil
}

// next reads the slot behind: nil when it is absent.
func (l *Log) next(ctx context.Context, slot uint64) (*Entry, error) {
	e, err := l.ReadHeader(ctx, slot+1)
	if errors.Is(err, remote.ErrNotFound) {
		return nil, nil
	}
	return e, err
}

func (l *Log) random() (r [16]byte, err error) {
	if _, err := io.ReadFull(l.o.Rand, r[:]); err != nil {
		return r, fmt.Errorf("random bytes: %w", err)
	}
	return r, nil
}

// wait sleeps before another try: RetryMin, doubled each time up to RetryMax, and never less than the store asked for in cause.
func (l *Log) wait(ctx context.Context, try int, cause error) error {
	d := l.o.RetryMax
	if try < 32 {
		d = min(d, l.o.RetryMin<<try)
	}
	if d <= 0 {
		d = l.o.RetryMax
	}
	var re *remote.Error
	if errors.As(cause, &re) {
		d = max(d, re.RetryAfter)
	}
	return l.o.Sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
