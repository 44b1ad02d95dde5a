package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/remote"
)

const maxPage = 1000 // keys

// List implements [remote.Store]. Of a database that does not exist, or that the key does not reach, there is nothing.
func (s *Store) List(ctx context.Context, prefix string, o remote.ListOptions) (page []remote.Info, more bool, err error) {
	r := &request{op: remote.OpList, name: "list", method: http.MethodGet, database: databaseOf(ctx, prefix), prefix: prefix}
	if err := remote.CheckPrefix(prefix); err != nil {
		return nil, false, s.error(r, remote.ErrUnfit, err)
	}
	limit := maxPage
	if o.Max > 0 {
		limit = min(limit, o.Max)
	}
	q := url.Values{"prefix": {prefix}, "max": {strconv.Itoa(limit)}}
	if o.After != "" {
		q.Set("after", o.After)
	}
	r.query = q.Encode()
	err = s.until(ctx, r, func(a answer) *failure {
		if a.status != http.StatusOK {
			f := s.refused(r, a)
			if f.code == objectwire.NotFound && !s.hasReached(r.database) {
				page, more = nil, false
				return nil
			}
			return f
		}
		if a.bodyErr != nil {
			return s.strange(r, a, remote.ErrUnknown, "the listing is cut: "+a.bodyErr.Error())
		}
		var l struct {
			Data *objectwire.Listing `json:"data"`
		}
		if err := json.Unmarshal(a.body, &l); err != nil || l.Data == nil {
			return s.strange(r, a, remote.ErrUnknown, "no listing of a tonbo server")
		}
		var f error
		if page, f = infos(l.Data.Objects, prefix, o.After, limit); f != nil {
			return s.strange(r, a, remote.ErrUnfit, f.Error())
		}
		if more = l.Data.More; more && len(page) == 0 {
			return s.strange(r, a, remote.ErrUnfit, "an empty page that is not the last")
		}
		s.accepted(r, a)
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return page, more, nil
}

// infos checks what the log's head rests on: order, and what was asked for.
func infos(objects []objectwire.Object, prefix, after string, limit int) ([]remote.Info, error) {
	if len(objects) > limit {
		return nil, fmt.Errorf("%d keys, asked for at most %d", len(objects), limit)
	}
	page := make([]remote.Info, 0, len(objects))
	last := after
	for _, o := range objects {
		switch {
		case !strings.HasPrefix(o.Key, prefix):
			return nil, fmt.Errorf("listed key %.300q does not begin with %.300q", o.Key, prefix)
		case o.Key <= last && last != "":
			return nil, fmt.Errorf("listed key %.300q comes after %.300q", o.Key, last)
		case o.ETag == "" || o.Size < 0:
			return nil, fmt.Errorf("listed key %.300q has no entity tag", o.Key)
		}
		last = o.Key
		page = append(page, remote.Info{Key: o.Key, Size: o.Size, ETag: o.ETag, Time: o.Time})
	}
	return page, nil
}
