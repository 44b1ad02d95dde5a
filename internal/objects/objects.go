package objects

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/internal/share"
	"github.com/tonbo-go/tonbo/remote"
)

// Options of New. The zero value works.
type Options struct {
	MaxObject int64         // bytes of one object; default 64 MiB
	MaxMemory int64         // bytes of bodies in memory at once; default 256 MiB, and at least two of the largest objects
	Rate      float64       // requests a second of one key; default 5,000; < 0: any number
	Stall     time.Duration // a body that does not move for so long is given up; default 15 s
	Speed     int64         // bytes a second that a body must make on the whole, beside Stall; default 32 KiB; < 0: any
	Wait      time.Duration // how long a request waits for room in memory; default 5 s
	AnyRoot   bool          // hand through keys of every first segment to callers that are not narrowed, not tonbo's own alone; for tests
	Now       func() time.Time
}

const (
	defaultMaxObject = 64 << 20
	defaultMaxMemory = 256 << 20
	defaultRate      = 5000
	defaultStall     = 15 * time.Second
	defaultSpeed     = 32 << 10
	defaultWait      = 5 * time.Second
)

func (o Options) withDefaults() Options {
	if o.MaxObject <= 0 {
		o.MaxObject = defaultMaxObject
	}
	if o.MaxMemory <= 0 {
		o.MaxMemory = defaultMaxMemory
	}
	o.MaxMemory = max(o.MaxMemory, 2*o.MaxObject)
	if o.Rate == 0 {
		o.Rate = defaultRate
	}
	if o.Stall <= 0 {
		o.Stall = defaultStall
	}
	if o.Speed == 0 {
		o.Speed = defaultSpeed
	}
	if o.Wait <= 0 {
		o.Wait = defaultWait
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Caller is who asks.
type Caller struct {
	ID       string // of the key, for limits
	Narrowed bool
	ReadOnly bool
	// Names and Prefixes are what a narrowed key reaches.
	Names, Prefixes []string
}

// Reaches tells whether the caller reaches a database, or an instance key.
func (c *Caller) Reaches(name string) bool {
	if !c.Narrowed {
		return true
	}
	for _, n := range c.Names {
		if n == name {
			return true
		}
	}
	for _, p := range c.Prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// Handler serves the objects of one store. Safe for concurrent use.
type Handler struct {
	o      Options
	store  remote.Store
	memory *share.Pool // bytes of bodies in it
	rate   *limiter
	tops   *tops
	forks  *ancestry
	roots  map[string]bool
}

// New returns the data plane of a store.
func New(s remote.Store, o Options) *Handler {
	o = o.withDefaults()
	h := &Handler{
		o: o, store: s, memory: share.New(o.MaxMemory), rate: newLimiter(o.Rate, o.Now), tops: newTops(s), forks: newAncestry(s), roots: map[string]bool{"db": true, "probe": true},
	}
	for _, prefix := range []string{catalog.RecordPrefix, catalog.EndedPrefix, catalog.AttemptPrefix, catalog.InstancePrefix, catalog.TotalsPrefix} {
		h.roots[strings.TrimSuffix(prefix, "/")] = true
	}
	return h
}

// lingering is how long the rest of a body that nobody wants is still read.
const lingering = time.Second

// MaxObject is the size in bytes of the largest object that is taken.
func (h *Handler) MaxObject() int64 { return h.o.MaxObject }

// Serve answers one request: GET, HEAD, PUT or DELETE of the object key, or with no key the GET of a listing. It is made on behalf of a database, which the caller reaches, or with "" of the account. An error is a
// [*Refusal], and nothing has been answered then; nil: the answer has been given, or was cut.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, c *Caller, database, key string) error {
	if wait, ok := h.rate.take(c.ID); !ok {
		return &Refusal{Status: http.StatusTooManyRequests, Code: objectwire.TooMany, Detail: "the key has sent too many requests", RetryAfter: wait}
	}
	w.Header().Set("Cache-Control", "no-store") // a remembered 404 hides a takeover (R6)
	x := &exchange{Handler: h, w: w, r: r, rc: http.NewResponseController(w), c: c, database: database, key: key}
	switch {
	case key == "" && r.Method == http.MethodGet:
		return x.list()
	case key == "":
		return invalid("a listing is a GET")
	}
	if err := remote.CheckKey(key); err != nil {
		return &Refusal{Status: http.StatusBadRequest, Code: objectwire.InvalidKey, Detail: "no object has such a key"}
	}
	x.at = parse(key)
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return x.get()
	case http.MethodPut:
		err := x.put()
		var refused *Refusal
		if errors.As(err, &refused) && refused.Close { // net/http reads on for a while, so that the client sees the answer: not for long
			x.rc.SetReadDeadline(time.Now().Add(lingering))
		}
		return err
	case http.MethodDelete:
		return x.delete()
	}
	return invalid("objects have GET, HEAD, PUT and DELETE")
}

// ours tells whether callers may touch what is under the first segment of a key. What the server keeps there for itself, its keys above all, nobody reaches.
func (h *Handler) ours(root string) bool { return h.roots[root] || h.o.AnyRoot }

// exchange is one request.
type exchange struct {
	*Handler
	w        http.ResponseWriter
	r        *http.Request
	rc       *http.ResponseController
	c        *Caller
	database string
	key      string
	at       target
}

// Refusal is why a request was not done, in the words of the protocol. Its text depends on nothing but the kind.
type Refusal struct {
	Status     int
	Code       string
	Detail     string
	RetryAfter time.Duration
	Header     http.Header
	Close      bool // the connection is of no more use
}

func (e *Refusal) Error() string { return e.Code + ": " + e.Detail }

func invalid(detail string) *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Code: objectwire.InvalidRequest, Detail: detail}
}

// absent is the answer for what does not exist, and for what the caller does not reach.
func absent() *Refusal {
	return &Refusal{Status: http.StatusNotFound, Code: objectwire.NotFound, Detail: "there is no such thing, or the key does not reach it"}
}

func noObject() *Refusal {
	return &Refusal{Status: http.StatusNotFound, Code: objectwire.ObjectNotFound, Detail: "the store says that the object is absent"}
}

func taken() *Refusal {
	return &Refusal{Status: http.StatusPreconditionFailed, Code: objectwire.Exists, Detail: "the store says that the object is there already"}
}

func narrowed() *Refusal {
	return &Refusal{Status: http.StatusForbidden, Code: objectwire.Narrowed, Detail: "the key is narrowed to some databases: it reads and writes them, and may not do this"}
}

// ofStore is what the store's error is to the caller. Codes of definite outcomes are given only for what the store said itself.
func ofStore(err error) *Refusal {
	var e *remote.Error
	errors.As(err, &e)
	r := &Refusal{Status: http.StatusServiceUnavailable, Code: objectwire.Unavailable, Detail: "the store did not say what became of it"}
	if e != nil {
		r.RetryAfter = e.RetryAfter
		if e.Status == http.StatusConflict || e.Status == http.StatusTooManyRequests {
			r.Status = e.Status
		}
	}
	if errors.Is(err, remote.ErrUnknown) {
		return r
	}
	r.RetryAfter = 0
	switch {
	case errors.Is(err, remote.ErrNotFound):
		return noObject()
	case errors.Is(err, remote.ErrExists):
		return taken()
	case errors.Is(err, remote.ErrChanged):
		return &Refusal{Status: http.StatusPreconditionFailed, Code: objectwire.Changed, Detail: "the store says that the object has another entity tag"}
	case errors.Is(err, remote.ErrQuota):
		return &Refusal{Status: http.StatusInsufficientStorage, Code: objectwire.Quota, Detail: "the store has no room, or refuses to store more"}
	case errors.Is(err, remote.ErrUnauthorized), errors.Is(err, remote.ErrDenied):
		return &Refusal{Status: http.StatusBadGateway, Code: objectwire.Refused, Detail: "the store refuses the server's credentials"}
	case errors.Is(err, remote.ErrBadKey):
		return &Refusal{Status: http.StatusBadRequest, Code: objectwire.InvalidKey, Detail: "no object has such a key"}
	case errors.Is(err, remote.ErrDamaged):
		return &Refusal{Status: http.StatusBadGateway, Code: objectwire.ObjectDamaged, Detail: "what the server's store has there is no whole object"}
	case errors.Is(err, remote.ErrUnfit), errors.Is(err, remote.ErrNoBucket), errors.Is(err, fence.ErrDamaged), errors.Is(err, fence.ErrNewer):
		return &Refusal{Status: http.StatusBadGateway, Code: objectwire.Unfit, Detail: "the server's store cannot do this"}
	}
	return r
}
