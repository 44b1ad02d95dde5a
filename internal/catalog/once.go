package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// Errors of Once, for errors.Is.
var (
	ErrOtherRequest = errors.New("the idempotency key was used for another request")
	ErrGone         = errors.New("the database that the idempotency key made has ended")
)

// KeyHash is what an idempotency key is known by in the store: 64 hexadecimal digits.
func KeyHash(key string) string {
	h := sha256.Sum256([]byte(key))
	return hex.EncodeToString(h[:])
}

// AttemptPrefix is what the keys of all attempts begin with.
const AttemptPrefix = "idem/"

func attemptKey(hash string, n uint64) string {
	return fmt.Sprintf("%s%s/%016x", AttemptPrefix, hash, n)
}

// Attempt is one entry in the log of an idempotency key: a creation that every caller with that key aims at. It is made create-if-absent and never changed.
type Attempt struct {
	Format    int       `json:"format"`
	Name      string    `json:"name"`
	ID        string    `json:"id"`
	Slot      uint64    `json:"slot"`    // of the create
	Request   string    `json:"request"` // hash of what was asked for
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	Source    *Point    `json:"source,omitempty"` // a fork's

	n uint64 // its number, from 1
}

func (a *Attempt) id() fence.ID {
	id, _ := fence.ParseID(a.ID)
	return id
}

// Once makes at most one database for an idempotency key, however many callers with that key there are and whatever becomes of them.
//
// The key has a log of attempts, each put create-if-absent. An attempt fixes name, id and slot, so all callers that find it aim at one create, and a log slot is written once. It has succeeded when
// that slot holds the create of its id, and has failed for good when it holds anything else; only then is there a next attempt. So at most one create ever comes of a key.
type Once struct {
	Store   remote.Store
	Log     *fence.Log // of the name
	Hash    string     // KeyHash of the key
	Request string     // hash of all that is asked for, the name included

	// Draft makes an attempt: its id, and all but the slot and the request, which are filled in.
	Draft func(ctx context.Context) (*Attempt, error)
	// Try makes the attempt: fence.Log.Create with its ID and Slot. Its error says what became of it.
	Try func(ctx context.Context, a *Attempt) (*fence.Entry, error)
	// Undo takes back the record and the pin of an attempt that has failed for good. Best effort.
	Undo func(ctx context.Context, a *Attempt)
	// Wait waits before a request is sent again. Default remote.Backoff.
	Wait func(ctx context.Context, cause error) error

	broken rule
}

// Run returns the head of the database that the key has made, or, when this call has made it, its create. replayed: another call has made it, before this one or beside it.
//
// Errors: ErrOtherRequest; ErrGone; fence.ErrTaken, when another database has the name; remote.ErrUnknown: run it again, it goes on where this one was; Draft's and Try's.
func (o Once) Run(ctx context.Context) (made *fence.Entry, replayed bool, err error) {
	// (1) The newest attempt.
	a, err := o.last(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("look at the idempotency key: %w", err)
	}
	mine := false
	for {
		// (2) None: propose one. Whatever is in its place then is what everybody aims at.
		if a == nil {
			if a, mine, err = o.propose(ctx, 1); err != nil {
				return nil, false, err
			}
		}
		if a.Request != o.Request || a.Name != o.Log.Name() {
			return nil, false, fmt.Errorf("%w (of database %s, made at %s)", ErrOtherRequest, a.Name, a.CreatedAt.UTC().Format(time.RFC3339))
		}
		// (3) What has become of it? Its slot says so, and never says otherwise again.
		var by *fence.Entry
		if !mine {
			by, err = o.Log.ReadHeader(ctx, a.Slot)
			if err != nil && !errors.Is(err, remote.ErrNotFound) {
				return nil, false, err
			}
		}
		// (4) Nothing yet: make it.
		if by == nil && (mine || o.broken != absentHasFailed) {
			made, err := o.Try(ctx, a)
			if err == nil {
				return made, false, nil
			}
			over := false
			by, over, err = o.failed(ctx, a, err)
			switch {
			case by != nil:
			case over && !mine && errors.Is(err, fence.ErrPointGone): // the point that another call had picked, long ago perhaps: pick anew
			default:
				return nil, false, err
			}
		}
		if by != nil && by.Kind == fence.Create && by.ID == a.id() {
			head, err := o.live(ctx, a)
			return head, true, err
		}
		// (5) It has failed for good: the next one.
		if a, mine, err = o.propose(ctx, a.n+1); err != nil {
			return nil, false, err
		}
	}
}

// failed tells what has become of an attempt that Try could not make: what its slot holds, or the error that stands. over: nothing will ever come of it.
func (o Once) failed(ctx context.Context, a *Attempt, err error) (by *fence.Entry, over bool, _ error) {
	var taken *fence.SlotTakenError
	var fenced *fence.FencedError
	switch {
	case errors.As(err, &taken):
		return taken.By, false, nil
	case errors.As(err, &fenced) && fenced.Stored: // made, and somebody has come behind it already
		return &fence.Entry{Kind: fence.Create, ID: a.id()}, false, nil
	case errors.Is(err, remote.ErrUnknown) || ctx.Err() != nil:
		return nil, false, err
	case o.broken == undoneUndecided:
		o.Undo(ctx, a)
		return nil, false, err
	}
	// It was refused, but another caller may be about to make it: before anything is taken back, the slot is decided (R11).
	made, aerr := o.Log.Abandon(ctx, a.id(), a.Slot)
	switch {
	case aerr != nil: // a janitor ends it, or the next call with this key
		return nil, false, err
	case made:
		return &fence.Entry{Kind: fence.Create, ID: a.id()}, false, nil
	}
	o.Undo(ctx, a)
	return nil, true, err
}

// live is the head of the database that an attempt has made.
func (o Once) live(ctx context.Context, a *Attempt) (*fence.Entry, error) {
	head, err := o.Log.HeadHeader(ctx)
	if err != nil {
		return nil, err
	}
	if head == nil || head.ID != a.id() || head.Ends() {
		return nil, fmt.Errorf("%w (%s, made at %s)", ErrGone, a.ID, a.CreatedAt.UTC().Format(time.RFC3339))
	}
	return head, nil
}

// last is the newest attempt. Nil: there is none.
func (o Once) last(ctx context.Context) (*Attempt, error) {
	n, err := newest(ctx, o.Store, o.Hash)
	if err != nil || n == 0 {
		return nil, err
	}
	return readAttempt(ctx, o.Store, o.Hash, n)
}

// newest is the number of a key's newest attempt. 0: there is none.
func newest(ctx context.Context, s remote.Store, hash string) (n uint64, err error) {
	prefix := AttemptPrefix + hash + "/"
	err = list(ctx, s, prefix, "", func(i remote.Info) bool {
		if m, err := strconv.ParseUint(i.Key[len(prefix):], 16, 64); err == nil && attemptKey(hash, m) == i.Key {
			n = m
		}
		return true
	})
	return n, err
}

func readAttempt(ctx context.Context, s remote.Store, hash string, n uint64) (*Attempt, error) {
	key := attemptKey(hash, n)
	obj, err := s.Get(ctx, key, remote.GetOptions{})
	if err != nil {
		return nil, err
	}
	a := &Attempt{n: n}
	if err := decode(s.String(), key, obj.Body, a, func() int { return a.Format }); err != nil {
		return nil, err
	}
	if _, ok := fence.ParseID(a.ID); !ok || a.Slot == 0 {
		return nil, fmt.Errorf("%w: %s/%s names slot %d, id %q", ErrDamaged, s, key, a.Slot, a.ID)
	}
	return a, nil
}

// propose puts attempt n and returns what is in its place. mine: it is the one put here.
func (o Once) propose(ctx context.Context, n uint64) (_ *Attempt, mine bool, err error) {
	// 1. The name must be free; the slot is the next one.
	head, err := o.Log.HeadHeader(ctx)
	if err != nil {
		return nil, false, err
	}
	slot := uint64(1)
	if head != nil {
		if slot = head.Slot + 1; !head.Ends() {
			return o.met(ctx, n)
		}
	}
	// 2. The attempt.
	a, err := o.Draft(ctx)
	if err != nil {
		return nil, false, err
	}
	a.Format, a.Name, a.Slot, a.Request, a.n = format, o.Log.Name(), slot, o.Request, n
	body, err := json.Marshal(a)
	if err != nil {
		return nil, false, err
	}
	if err := createOnce(ctx, o.Store, attemptKey(o.Hash, n), body, o.Wait); err != nil {
		return nil, false, err
	}
	if o.broken == notReadBack {
		return a, true, nil
	}
	// 3. Whatever the answers were, what is there decides.
	there, err := readAttempt(ctx, o.Store, o.Hash, n)
	if err != nil {
		return nil, false, err
	}
	return there, there.ID == a.ID, nil
}

// met: a live database has the name. It may have come of the very attempt that we were about to propose.
func (o Once) met(ctx context.Context, n uint64) (*Attempt, bool, error) {
	a, err := readAttempt(ctx, o.Store, o.Hash, n)
	if errors.Is(err, remote.ErrNotFound) {
		return nil, false, fence.ErrTaken
	}
	return a, false, err
}

// DropAttempts forgets an idempotency key, if its newest attempt is older than keep and its database, if there was one, has ended: a creation that is still under way is ended before. It tells
// whether it did. A caller with the key may make a new database from then on. log opens the log of a name.
func DropAttempts(ctx context.Context, s remote.Store, hash string, now time.Time, keep time.Duration, log func(name string) *fence.Log) (bool, error) {
	n, err := newest(ctx, s, hash)
	if err != nil || n == 0 {
		return false, err
	}
	a, err := readAttempt(ctx, s, hash, n)
	if err != nil || now.Sub(a.CreatedAt) < keep {
		return false, err
	}
	// That slot first, the head after (R11): from here on the attempt has either succeeded or failed for good.
	l := log(a.Name)
	made, err := l.Abandon(ctx, a.id(), a.Slot)
	if err != nil {
		return false, err
	}
	if made {
		head, err := l.HeadHeader(ctx)
		if err != nil || head != nil && head.ID == a.id() && !head.Ends() {
			return false, err
		}
	}
	// The newest one last: until then it speaks for all.
	var keys []string
	err = list(ctx, s, AttemptPrefix+hash+"/", "", func(i remote.Info) bool {
		keys = append(keys, i.Key)
		return true
	})
	if err != nil || len(keys) == 0 || keys[len(keys)-1] != attemptKey(hash, n) { // somebody has begun anew
		return false, err
	}
	for _, k := range keys {
		if err := s.Delete(ctx, k); err != nil {
			return false, err
		}
	}
	return true, nil
}
