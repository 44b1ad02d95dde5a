package s3

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

// listing is https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html.
type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	IsTruncated           bool
	NextContinuationToken string
	EncodingType          string
	Contents              []struct {
		Key          string
		ETag         string
		Size         int64
		LastModified time.Time
	}
}

// maxPage is one less than what S3 gives at most: one more than wanted is asked for, since some stores (versitygw) call a listing
// truncated whose last key is the last one that was asked for.
const maxPage = 999 // keys

// List implements [remote.Store].
func (s *Store) List(ctx context.Context, prefix string, o remote.ListOptions) (page []remote.Info, more bool, err error) {
	r := request{op: remote.OpList, method: http.MethodGet, prefix: prefix}
	if err := remote.CheckPrefix(prefix); err != nil {
		return nil, false, s.error(r, remote.ErrUnfit, err)
	}
	limit := maxPage
	if o.Max > 0 {
		limit = min(limit, o.Max)
	}
	token := ""
	for {
		r.query = s.listQuery(prefix, o.After, token, limit+1)
		var l listing
		err := s.until(ctx, r, func(a answer) *failure {
			if a.status != http.StatusOK {
				return s.refused(r, a)
			}
			if a.bodyErr != nil {
				return s.strange(r, a, remote.ErrUnknown, "listing is cut: "+a.bodyErr.Error())
			}
			var err error
			if l, err = decodeListing(a.body); err != nil {
				return s.strange(r, a, remote.ErrUnknown, "not a listing: "+err.Error())
			}
			return nil
		})
		if err != nil {
			return nil, false, err
		}
		page, err := s.page(l, prefix, o.After)
		if err != nil {
			return nil, false, s.error(r, remote.ErrUnfit, err)
		}
		if len(page) > limit {
			return page[:limit], true, nil
		}
		if len(page) > 0 || !l.IsTruncated {
			return page, l.IsTruncated, nil
		}
		// A page may be empty and yet not the last.
		if l.NextContinuationToken == "" || l.NextContinuationToken == token {
			return nil, false, s.error(r, remote.ErrUnfit, fmt.Errorf("empty page that is not the last, without a token to go on"))
		}
		token = l.NextContinuationToken
	}
}

func decodeListing(body []byte) (l listing, err error) {
	err = xml.Unmarshal(body, &l)
	return l, err
}

func (s *Store) listQuery(prefix, after, token string, limit int) string {
	q := url.Values{
		"list-type":     {"2"},
		"encoding-type": {"url"}, // a stranger's key could hold what XML cannot
		"max-keys":      {strconv.Itoa(limit)},
		"prefix":        {s.full(prefix)},
	}
	if after != "" {
		q.Set("start-after", s.full(after))
	}
	if token != "" {
		q.Set("continuation-token", token)
	}
	return q.Encode()
}

// page turns the store's answer into relative keys, and checks what the log's head rests on: order, and start-after.
func (s *Store) page(l listing, prefix, after string) ([]remote.Info, error) {
	page := make([]remote.Info, 0, len(l.Contents))
	last := after
	for _, c := range l.Contents {
		full := c.Key
		if l.EncodingType == "url" {
			var err error
			if full, err = url.QueryUnescape(full); err != nil {
				return nil, fmt.Errorf("listed key: %w", err)
			}
		}
		key := full
		if s.loc.prefix != "" {
			var ok bool
			if key, ok = strings.CutPrefix(full, s.loc.prefix+"/"); !ok {
				return nil, fmt.Errorf("listed key %q is not below prefix %q", full, s.loc.prefix)
			}
		}
		if !strings.HasPrefix(key, prefix) {
			return nil, fmt.Errorf("listed key %q does not begin with %q", key, prefix)
		}
		if key <= last && last != "" {
			return nil, fmt.Errorf("listed key %q comes after %q: the store lists without order, or ignores start-after", key, last)
		}
		last = key
		if remote.CheckKey(key) != nil {
			continue // not ours: a folder marker, say
		}
		page = append(page, remote.Info{Key: key, Size: c.Size, ETag: unquote(c.ETag), Time: c.LastModified})
	}
	return page, nil
}
