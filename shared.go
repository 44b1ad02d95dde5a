package tonbo

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"strings"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/blockcache"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// sharedName is the folder of the machine's shared block cache in Options.Dir. No database's folder is called so: names begin with a letter or a digit.
const sharedName = ".blocks"

// sharedStore is a store whose pages are kept for others on this machine: forks of one database, and read-only handles, fetch each block once among them. An
// owner's own objects are not shared: its local copy keeps their pages already.
//
// Only what never changes comes out of the cache: blocks, which the caller's checksums identify; the maps of segments, and bases, whose keys are never used twice; and
// entries of a log, for a caller who knows of which incarnation they are. Never an answer that something is absent, nor the head of a log.
type sharedStore struct {
	remote.Store
	cache *blockcache.Cache
	own   string // prefix of keys that are not shared, "": all are
	life  string // incarnation, for entries of its log
}

var _ layout.Sharing = (*sharedStore)(nil)

// share makes the handle use the machine's shared block cache, if the options say so.
func (h *handle) share(own string) {
	if h.o.SharedCache < 0 {
		return
	}
	h.blocks = blockcache.New(blockcache.Options{Dir: filepath.Join(h.o.Dir, sharedName), Max: h.o.SharedCache, Logger: h.o.Logger})
	h.pages = &sharedStore{Store: h.store, cache: h.blocks, own: own}
}

// unshare waits for what the cache does in the background.
func (h *handle) unshare() {
	if h.blocks != nil {
		h.blocks.Close()
	}
}

// slots is the store to read an incarnation's log from, when it is known which slots are there.
func (h *handle) slots(id fence.ID) remote.Store {
	if s, ok := h.pages.(*sharedStore); ok {
		s := *s
		s.life = id.String()
		return &s
	}
	return h.pages
}

// Shared implements [layout.Sharing].
func (s *sharedStore) Shared(key string) *blockcache.Object {
	if s.own != "" && strings.HasPrefix(key, s.own) {
		return nil
	}
	return s.cache.Object(s.Store.String(), key, "")
}

// Get implements [remote.Store]. Whole objects and their ends are shared: other parts are read for blocks.
func (s *sharedStore) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	shared := s.Shared(key)
	if shared == nil || o.Length != 0 || o.Offset > 0 || o.IfMatch != "" {
		return s.Store.Get(ctx, key, o)
	}
	if strings.Contains(key, "/log/") {
		if s.life == "" {
			return s.Store.Get(ctx, key, o)
		}
		shared = s.cache.Object(s.Store.String(), key, s.life)
	}
	b, err := shared.Blob(ctx, o.Offset, func(ctx context.Context) ([]byte, bool, error) {
		r, err := s.Store.Get(ctx, key, o)
		if err != nil {
			return nil, false, err
		}
		b := binary.AppendUvarint(nil, uint64(r.Size))
		b = binary.AppendUvarint(b, uint64(len(r.ETag)))
		return append(append(b, r.ETag...), r.Body...), sound(key, r, o.Offset < 0), nil
	})
	if err != nil {
		return remote.Object{}, err
	}
	size, n := binary.Uvarint(b)
	b = b[max(n, 0):]
	etag, n := binary.Uvarint(b)
	b = b[max(n, 0):]
	if etag > uint64(len(b)) { // the file's checksum is right, so another version of the program wrote it
		return s.Store.Get(ctx, key, o)
	}
	return remote.Object{Info: remote.Info{Key: key, Size: int64(size), ETag: string(b[:etag])}, Body: b[etag:]}, nil
}

// sound tells whether what was read of an object is what was put, by its own checksums, every one of them. What was damaged on its way would else be an error to all on this machine, until it is evicted. end: only the last bytes were asked for.
func sound(key string, r remote.Object, end bool) bool {
	if strings.Contains(key, "/base/") {
		_, err := base.Decode(r.Body)
		return err == nil
	}
	if end && int64(len(r.Body)) < r.Size {
		_, _, _, err := segment.DecodeIndexTail(r.Body, r.Size)
		return err == nil // of one that is too short for the map, the footer is right, and nobody wants more
	}
	hd, n, err := segment.DecodeHeader(r.Body)
	if err != nil {
		return false
	}
	if hd.Kind == segment.KindPack {
		return soundPack(r.Body)
	}
	ix, err := segment.DecodeIndex(r.Body[n:], hd)
	return err == nil && ix.Check(r.Body[n:]) == nil
}

func soundPack(body []byte) bool {
	hd, p, err := segment.DecodePack(body)
	if err != nil {
		return false
	}
	for i := range p.Entries {
		if _, err := p.Entries[i].Checked(hd.PageSize); err != nil {
			return false
		}
	}
	return p.Upper == nil || (&base.Upper{Sum: base.SumString(p.UpperSum), Payload: p.Upper}).Check(hd.PageSize, segment.MaxPage) == nil
}
