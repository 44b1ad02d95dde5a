// Package mem is an object store in memory, for tests and for programs that want the API without a place to keep things.
// It is strongly consistent and gone with the process.
package mem

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

// Store is a [remote.Store] in memory. It copies bodies, and no two objects that it ever stored have the same entity tag.
// Methods answer at once: a context is looked at only when they begin.
type Store struct {
	name string

	mu      sync.Mutex
	keys    []string // sorted
	objects map[string]object
	stored  uint64 // objects ever stored; the entity tag of the last one
}

type object struct {
	body []byte // never written again
	etag string
	time time.Time
}

const maxPage = 1000 // keys

var _ remote.Store = (*Store)(nil)

// New returns an empty store of its own, which calls itself mem://name.
func New(name string) *Store {
	return &Store{name: name, objects: make(map[string]object)}
}

var named struct {
	mu     sync.Mutex
	stores map[string]*Store
}

// Named returns the process's store of that name, empty at first: what the URL mem://name means.
func Named(name string) *Store {
	named.mu.Lock()
	defer named.mu.Unlock()
	s := named.stores[name]
	if s == nil {
		if named.stores == nil {
			named.stores = make(map[string]*Store)
		}
		s = New(name)
		named.stores[name] = s
	}
	return s
}

// String returns "mem://name".
func (s *Store) String() string { return "mem://" + s.name }

// Create implements [remote.Store].
func (s *Store) Create(ctx context.Context, key string, body []byte) (string, error) {
	if err := s.begin(ctx, "create", key, remote.CheckKey); err != nil {
		return "", err
	}
	remote.Record(ctx, remote.OpPut, int64(len(body)), 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, taken := slices.BinarySearch(s.keys, key)
	if taken {
		return "", s.fail("create", key, remote.ErrExists, nil)
	}
	s.keys = slices.Insert(s.keys, i, key)
	return s.put(key, body), nil
}

// Swap implements [remote.Store].
func (s *Store) Swap(ctx context.Context, key, etag string, body []byte) (string, error) {
	if err := s.begin(ctx, "swap", key, remote.CheckKey); err != nil {
		return "", err
	}
	remote.Record(ctx, remote.OpPut, int64(len(body)), 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	switch {
	case !ok:
		return "", s.fail("swap", key, remote.ErrNotFound, nil)
	case o.etag != etag:
		return "", s.fail("swap", key, remote.ErrChanged, nil)
	}
	return s.put(key, body), nil
}

// put stores a copy of body. s.mu is held.
func (s *Store) put(key string, body []byte) (etag string) {
	s.stored++
	etag = strconv.FormatUint(s.stored, 10)
	s.objects[key] = object{slices.Clone(body), etag, time.Now()}
	return etag
}

// Get implements [remote.Store].
func (s *Store) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	obj, part, err := s.part(ctx, key, o)
	if err != nil {
		return remote.Object{}, err
	}
	return remote.Object{Info: obj.info(key), Body: slices.Clone(part)}, nil
}

// part finds an object and the bytes of it that o picks. They are the store's own.
func (s *Store) part(ctx context.Context, key string, o remote.GetOptions) (obj object, part []byte, err error) {
	if err := s.begin(ctx, "get", key, remote.CheckKey); err != nil {
		return object{}, nil, err
	}
	s.mu.Lock()
	obj, ok := s.objects[key]
	s.mu.Unlock()
	switch {
	case !ok:
		err = s.fail("get", key, remote.ErrNotFound, nil)
	case o.IfMatch != "" && o.IfMatch != obj.etag:
		err = s.fail("get", key, remote.ErrChanged, nil)
	default:
		offset, n := o.Span(int64(len(obj.body)))
		part = obj.body[offset : offset+n]
	}
	remote.Record(ctx, remote.OpGet, 0, int64(len(part)))
	return obj, part, err
}

func (o object) info(key string) remote.Info {
	return remote.Info{Key: key, Size: int64(len(o.body)), ETag: o.etag, Time: o.time}
}

// List implements [remote.Store]. A page is one moment's state and has at most 1000 keys.
func (s *Store) List(ctx context.Context, prefix string, o remote.ListOptions) (page []remote.Info, more bool, err error) {
	if err := s.begin(ctx, "list", prefix, remote.CheckPrefix); err != nil {
		return nil, false, err
	}
	remote.Record(ctx, remote.OpList, 0, 0)
	limit := maxPage
	if o.Max > 0 {
		limit = min(limit, o.Max)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := slices.BinarySearch(s.keys, max(prefix, o.After))
	if found && s.keys[i] == o.After {
		i++
	}
	for ; i < len(s.keys) && strings.HasPrefix(s.keys[i], prefix); i++ {
		if len(page) == limit {
			return page, true, nil
		}
		page = append(page, s.objects[s.keys[i]].info(s.keys[i]))
	}
	return page, false, nil
}

// Delete implements [remote.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.begin(ctx, "delete", key, remote.CheckKey); err != nil {
		return err
	}
	remote.Record(ctx, remote.OpDelete, 0, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := slices.BinarySearch(s.keys, key); ok {
		s.keys = slices.Delete(s.keys, i, i+1)
		delete(s.objects, key)
	}
	return nil
}

func (s *Store) begin(ctx context.Context, op, key string, check func(string) error) error {
	if err := check(key); err != nil {
		return s.fail(op, key, remote.ErrUnfit, err)
	}
	if err := ctx.Err(); err != nil {
		return s.fail(op, key, remote.ErrUnknown, err)
	}
	return nil
}

func (s *Store) fail(op, key string, kind, cause error) error {
	return &remote.Error{Op: op, Store: s.String(), Key: key, Kind: kind, Err: cause}
}
