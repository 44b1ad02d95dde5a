package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/view"
	"github.com/tonbo-go/tonbo/server/internal/access"
)

// newBody are the fields of every route that makes a database.
type newBody struct {
	ExpiresAt json.RawMessage   `json:"expires_at"`
	TTL       json.RawMessage   `json:"ttl"`
	Metadata  map[string]string `json:"metadata"`
	Protected bool              `json:"protected"`
}

func (b newBody) options() (o tonbo.CreateOptions, err error) {
	o = tonbo.CreateOptions{Metadata: b.Metadata, Protected: b.Protected}
	at, ttl, err := expiry(b.ExpiresAt, b.TTL)
	if err != nil {
		return o, err
	}
	if at.Value != nil {
		o.ExpiresAt = *at.Value
	}
	if ttl != nil {
		o.TTL = *ttl
	}
	return o, nil
}

// createBody are those of the routes that make one under a name.
type createBody struct {
	newBody
	Frozen bool `json:"frozen"`
}

func (b createBody) options(c *call) (tonbo.CreateOptions, error) {
	key, err := idempotencyKey(c)
	if err != nil {
		return tonbo.CreateOptions{}, err
	}
	o, err := b.newBody.options()
	o.Frozen, o.IdempotencyKey = b.Frozen, key
	return o, err
}

// expiry reads expires_at (a time, null, or absent) and ttl: whatever is wrong with them is 422, not 400.
func expiry(at, ttl json.RawMessage) (t optional[time.Time], d *time.Duration, err error) {
	invalid := func(err error) error {
		return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_expires_at", Detail: err.Error()}
	}
	if len(at) > 0 {
		if err := json.Unmarshal(at, &t); err != nil {
			return t, nil, invalid(errors.New(`expires_at: want a time such as "2026-11-30T10:00:00Z", or null`))
		}
		if t.Value != nil && t.Value.IsZero() {
			return t, nil, invalid(errors.New("expires_at is past"))
		}
	}
	if len(ttl) > 0 && string(ttl) != "null" {
		var v duration
		if err := json.Unmarshal(ttl, &v); err != nil {
			return t, nil, invalid(err)
		}
		d = (*time.Duration)(&v)
	}
	if t.Value != nil && d != nil {
		return t, nil, invalid(errors.New("expires_at and ttl are both set: set one of them"))
	}
	return t, d, nil
}

func idempotencyKey(c *call) (string, error) {
	values := c.r.Header.Values("Idempotency-Key")
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1 || values[0] == "":
		return "", badRequest("one Idempotency-Key, of 1 to 255 printable ASCII characters, is wanted")
	}
	return values[0], nil
}

// created answers with a database that was made.
func (c *call) created(d *tonbo.Database) error {
	h := c.w.Header()
	h.Set("Location", "/v1/databases/"+url.PathEscape(d.Name))
	if d.Replayed {
		h.Set("Idempotency-Replayed", "true")
	}
	return c.data(http.StatusCreated, view.DatabaseOf(d))
}

func (s *Server) createDatabase(c *call) error {
	var b struct {
		Name string `json:"name"`
		createBody
	}
	if err := c.body(&b); err != nil {
		return err
	}
	if b.Name == "" {
		return tonbo.ErrName
	}
	if err := c.key.May(access.ManageDatabase, b.Name); err != nil {
		return err
	}
	c.params["name"] = b.Name // for the log
	o, err := b.options(c)
	if err != nil {
		return err
	}
	d, err := s.client.Create(c.ctx, b.Name, o)
	if err != nil {
		return err
	}
	return c.created(d)
}

const (
	defaultPage = 100
	maxPage     = 1000
)

// page reads limit and cursor of a listing.
func page(q url.Values) (limit int, cursor string, err error) {
	limit = defaultPage
	if s := q.Get("limit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < 1 || limit > maxPage {
			return 0, "", badRequest(fmt.Sprintf("limit: want a number from 1 to %d", maxPage))
		}
	}
	return limit, q.Get("cursor"), nil
}

// query parses what stands behind the ?, and refuses what the route does not know: a misspelled filter must not list everything.
func (c *call) query(known func(string) bool) (url.Values, error) {
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query cannot be read")
	}
	for k, v := range q {
		if !known(k) {
			return nil, badRequest(fmt.Sprintf("unknown parameter %.60q", k))
		}
		if len(v) > 1 {
			return nil, badRequest(fmt.Sprintf("parameter %.60q is there twice", k))
		}
	}
	return q, nil
}

func (s *Server) listDatabases(c *call) error {
	q, err := c.query(func(k string) bool {
		return k == "prefix" || k == "state" || k == "limit" || k == "cursor" || metadataKey(k) != ""
	})
	if err != nil {
		return err
	}
	limit, cursor, err := page(q)
	if err != nil {
		return err
	}
	f := tonbo.Filter{Prefix: q.Get("prefix"), State: q.Get("state")}
	for k := range q {
		if name := metadataKey(k); name != "" {
			if f.Metadata == nil {
				f.Metadata = map[string]string{}
			}
			f.Metadata[name] = q.Get(k)
		}
	}
	if cursor != "" && tonbo.ValidateName(cursor) != nil {
		return badRequest("cursor: want the next_cursor of the page before")
	}
	found, err := s.list(c, f, cursor, limit+1)
	if err != nil {
		return err
	}
	var answer struct {
		Data []view.Database `json:"data"`
		Next string          `json:"next_cursor,omitempty"`
	}
	answer.Data = []view.Database{}
	for _, d := range found {
		if len(answer.Data) == limit {
			answer.Next = answer.Data[limit-1].Name
			break
		}
		answer.Data = append(answer.Data, view.DatabaseOf(d))
	}
	return c.json(http.StatusOK, answer)
}

// metadataKey is the key of a filter metadata.key=value, or metadata[key]=value, as generated clients spell it. "": it is none.
func metadataKey(parameter string) string {
	if k, ok := strings.CutPrefix(parameter, "metadata."); ok {
		return k
	}
	k, ok := strings.CutPrefix(parameter, "metadata[")
	if k, closed := strings.CutSuffix(k, "]"); ok && closed {
		return k
	}
	return ""
}

// list returns the first databases behind after that the filter picks and the key reaches. For a narrowed key it looks at nothing but what it reaches, so that what others have costs no time either.
func (s *Server) list(c *call, f tonbo.Filter, after string, limit int) ([]*tonbo.Database, error) {
	if !c.key.Narrowed() {
		f.After, f.Limit = after, limit
		return s.collect(c, f)
	}
	// Its prefixes and names, one after the other, without what is in another one already.
	var all []*tonbo.Database
	prefixes := slices.Clone(c.key.Prefixes)
	prefixes = slices.DeleteFunc(prefixes, func(p string) bool {
		return slices.ContainsFunc(c.key.Prefixes, func(q string) bool { return q != p && strings.HasPrefix(p, q) })
	})
	for _, p := range prefixes {
		g := f
		switch {
		case strings.HasPrefix(f.Prefix, p):
		case strings.HasPrefix(p, f.Prefix):
			g.Prefix = p
		default:
			continue
		}
		g.After, g.Limit = after, limit
		some, err := s.collect(c, g)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	var names []string
	for _, name := range c.key.Databases {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) && strings.HasPrefix(name, f.Prefix) && (after == "" || !listedBefore(name, after)) {
			names = append(names, name)
		}
	}
	named, err := s.named(c.ctx, f, names)
	if err != nil {
		return nil, err
	}
	all = append(all, named...)
	slices.SortFunc(all, func(a, b *tonbo.Database) int { return strings.Compare(a.Name+"/", b.Name+"/") })
	return all[:min(len(all), limit)], nil
}

// listedBefore tells whether a listing that goes on behind after has passed name: the order is that of the remote's keys, where a slash follows the name.
func listedBefore(name, after string) bool { return name+"/" <= after+"/" }

// named returns those of the named databases that live and that the filter picks.
func (s *Server) named(ctx context.Context, f tonbo.Filter, names []string) ([]*tonbo.Database, error) {
	rows := make([]*tonbo.Database, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(namesAtOnce)
	for i, name := range names {
		g.Go(func() error {
			d, err := s.client.Get(gctx, name)
			if errors.Is(err, tonbo.ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			for k, v := range f.Metadata {
				if got, ok := d.Metadata[k]; !ok || got != v {
					return nil
				}
			}
			if f.State == "" || f.State == d.State {
				d.Head, d.Bytes = tonbo.Point{}, 0 // as in a listing
				rows[i] = d
			}
			return nil
		})
	}
	err := g.Wait()
	return slices.DeleteFunc(rows, func(d *tonbo.Database) bool { return d == nil }), err
}

const namesAtOnce = 8

func (s *Server) collect(c *call, f tonbo.Filter) (all []*tonbo.Database, err error) {
	for d, err := range s.client.List(c.ctx, f) {
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func (s *Server) getDatabase(c *call) error {
	d, err := s.client.Get(c.ctx, c.name())
	if err != nil {
		return err
	}
	return c.data(http.StatusOK, view.DatabaseOf(d))
}

// updateBody is a JSON merge patch (RFC 7396) of what can be changed.
type updateBody struct {
	ExpiresAt json.RawMessage    `json:"expires_at"`
	TTL       json.RawMessage    `json:"ttl"`
	Metadata  map[string]*string `json:"metadata"`
	Protected *bool              `json:"protected"`
	Frozen    *bool              `json:"frozen"`
}

func (b updateBody) options() (o tonbo.UpdateOptions, err error) {
	o = tonbo.UpdateOptions{Metadata: b.Metadata, Protected: b.Protected, Frozen: b.Frozen}
	at, ttl, err := expiry(b.ExpiresAt, b.TTL)
	if err != nil {
		return o, err
	}
	o.TTL = ttl
	if at.Set {
		o.ExpiresAt = at.Value
		if at.Value == nil {
			o.ExpiresAt = new(time.Time)
		}
	}
	return o, nil
}

func (s *Server) updateDatabase(c *call) error {
	var b updateBody
	if err := c.body(&b); err != nil {
		return err
	}
	o, err := b.options()
	if err != nil {
		return err
	}
	d, err := s.client.Update(c.ctx, c.name(), o)
	if err != nil {
		return err
	}
	return c.data(http.StatusOK, view.DatabaseOf(d))
}

func (s *Server) deleteDatabase(c *call) error {
	err := s.client.Delete(c.ctx, c.name())
	s.keys.Ended(c.name()) // also when the outcome is not known
	if err != nil {
		return err
	}
	return c.none()
}
