package objects

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/internal/share"
	"github.com/tonbo-go/tonbo/remote"
)

const (
	maxPage  = 1000 // keys
	fewKeys  = 16
	keyBytes = 512 // of memory for one, while the answer is made: the key, and its JSON
)

// list answers with the keys that begin with ?prefix=, behind ?after=, at most ?max=.
func (x *exchange) list() error {
	q := x.r.URL.Query()
	for name, values := range q {
		if name != "prefix" && name != "after" && name != "max" || len(values) > 1 {
			return invalid("a listing has prefix, after and max, once each")
		}
	}
	prefix, after, limit := q.Get("prefix"), q.Get("after"), maxPage
	if m := q.Get("max"); m != "" {
		n, err := strconv.Atoi(m)
		if err != nil || n < 1 {
			return invalid("max is a number of keys from 1 on")
		}
		limit = min(limit, n)
	}
	if remote.CheckPrefix(prefix) != nil {
		return &Refusal{Status: http.StatusBadRequest, Code: objectwire.InvalidKey, Detail: "no object has such a prefix"}
	}
	var held *share.Hold
	if limit > fewKeys { // fewer take less than the connection that asks for them
		var err error
		if held, err = x.memory.Acquire(x.r.Context(), x.c.ID, min(int64(limit)*keyBytes, x.o.MaxMemory/2), x.o.Wait); err != nil {
			return busy()
		}
		defer held.Release()
	}
	page, more, err := x.page(prefix, after, limit)
	if err != nil {
		return err
	}
	l := objectwire.Listing{Objects: make([]objectwire.Object, 0, len(page)), More: more}
	for _, i := range page {
		l.Objects = append(l.Objects, objectwire.Object{Key: i.Key, Size: i.Size, ETag: i.ETag, Time: i.Time.UTC()})
	}
	body, err := json.Marshal(map[string]objectwire.Listing{"data": l})
	if err != nil {
		return err
	}
	if held != nil {
		held.Shrink(int64(len(body)))
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.writing(0)
	x.w.WriteHeader(http.StatusOK)
	x.w.Write(body)
	return nil
}

func (x *exchange) page(prefix, after string, limit int) ([]remote.Info, bool, error) {
	if !x.c.Narrowed {
		return x.visible(prefix, after, limit, func(t target) bool { return x.ours(t.root) })
	}
	x.at = parse(prefix)
	whole := strings.Count(prefix, "/") >= 2 // the name stands there in full
	switch {
	case prefix == remote.ProbeKey:
		return x.visible(prefix, after, limit, func(t target) bool { return t.root == "probe" })
	case x.at.scoped() && whole && !x.c.Reaches(x.at.name):
		return nil, false, absent()
	case x.at.scoped() && whole:
		page, more, err := x.visible(prefix, after, limit, x.c.sees)
		if err == nil && len(page) == 0 {
			err = x.nothing(nil)
		}
		return page, more, err
	case strings.HasPrefix(prefix, catalog.RecordPrefix):
		return x.reachable(prefix, after, limit)
	}
	return nil, false, narrowed()
}

// visible lists what see lets through. What it keeps back leaves no trace: a page is filled up from the next one.
func (x *exchange) visible(prefix, after string, limit int, see func(target) bool) (page []remote.Info, more bool, err error) {
	want := limit
	if x.c.Narrowed && strings.HasPrefix("pin", parse(prefix).kind) {
		want++ // whether there is more must not tell of what is kept back
	}
	for {
		some, further, err := x.store.List(x.r.Context(), prefix, remote.ListOptions{After: after, Max: min(want-len(page), maxPage)})
		if err != nil {
			return nil, false, ofStore(err)
		}
		for _, i := range some {
			after = i.Key
			if see(parse(i.Key)) {
				page = append(page, i)
			}
		}
		switch {
		case len(page) > limit:
			return page[:limit], true, nil
		case !further || len(some) == 0:
			return page, false, nil
		case len(page) == want:
			return page, true, nil
		}
	}
}

// reachable lists index records of the databases that the key reaches. It asks the store for these alone, so that neither the answer nor its time tells of others.
func (x *exchange) reachable(prefix, after string, limit int) (page []remote.Info, more bool, err error) {
	for _, p := range x.c.recordPrefixes(prefix) {
		for {
			// One more tells whether there are further ones.
			some, further, err := x.store.List(x.r.Context(), p, remote.ListOptions{After: after, Max: min(limit+1-len(page), maxPage)})
			if err != nil {
				return nil, false, ofStore(err)
			}
			page = append(page, some...)
			if len(page) > limit {
				return page[:limit], true, nil
			}
			if !further || len(some) == 0 {
				break
			}
			after = some[len(some)-1].Key
		}
	}
	return page, false, nil
}

// recordPrefixes are the prefixes within prefix that hold what the caller reaches: ascending, none within another.
func (c *Caller) recordPrefixes(prefix string) []string {
	var all []string
	add := func(p string) {
		switch {
		case strings.HasPrefix(p, prefix):
			all = append(all, p)
		case strings.HasPrefix(prefix, p):
			all = append(all, prefix)
		}
	}
	for _, n := range c.Names {
		add(catalog.RecordPrefix + n + "/")
	}
	for _, p := range c.Prefixes {
		add(catalog.RecordPrefix + p)
	}
	slices.Sort(all)
	var r []string
	for _, p := range all {
		if len(r) == 0 || !strings.HasPrefix(p, r[len(r)-1]) {
			r = append(r, p)
		}
	}
	return r
}
