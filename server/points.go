package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/spelling"
	"github.com/tonbo-go/tonbo/internal/view"
	"github.com/tonbo-go/tonbo/server/internal/access"
)

// at reads a point as a client spells it in a field.
func at(field, s string) (tonbo.At, error) {
	p, err := spelling.Point(s)
	if err != nil {
		return nil, badRequest(field + ": " + err.Error())
	}
	return p, nil
}

func (s *Server) fork(c *call) error {
	var b struct {
		Name string `json:"name"`
		At   string `json:"at"`
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
	o, err := b.options(c)
	if err != nil {
		return err
	}
	point, err := at("at", b.At)
	if err != nil {
		return err
	}
	d, err := s.client.Fork(c.ctx, c.name(), b.Name, tonbo.ForkOptions{CreateOptions: o, At: point})
	if err != nil {
		return err
	}
	return c.created(d)
}

func (s *Server) rewind(c *call) error {
	var b struct {
		At string `json:"at"`
	}
	if err := c.body(&b); err != nil {
		return err
	}
	point, err := at("at", b.At)
	if err != nil {
		return err
	}
	if point == nil {
		return badRequest(`at: which point? {"at": "step-7"}`)
	}
	before, err := s.client.Rewind(c.ctx, c.name(), point)
	if err != nil {
		return err
	}
	return c.data(http.StatusOK, view.Rewound{Name: c.name(), Before: view.PointOf(before)})
}

// checkpoint labels the head. Only an owner can: the server takes the database over for that, and refuses while somebody else has it.
func (s *Server) checkpoint(c *call) error {
	var b struct {
		Label    string `json:"label"`
		TakeOver bool   `json:"take_over"`
	}
	if err := c.body(&b); err != nil {
		return err
	}
	if err := spelling.Label(b.Label); err != nil {
		return badRequest(err.Error())
	}
	if !b.TakeOver {
		if err := s.notOpen(c.ctx, c.name()); err != nil {
			return err
		}
	}
	release, err := s.slot(c)
	if err != nil {
		return err
	}
	defer release()
	p, err := s.label(c, b.Label)
	if err != nil {
		return err
	}
	return c.data(http.StatusCreated, view.Labelled{Name: c.name(), Point: view.PointOf(p)})
}

// label opens the database in a directory of its own, so that requests about one name do not wait for each other and nothing stays.
func (s *Server) label(c *call, label string) (tonbo.Point, error) {
	dir, err := os.MkdirTemp(s.dir, ".server-*")
	if err != nil {
		return tonbo.Point{}, fmt.Errorf("directory for a checkpoint: %w", err)
	}
	defer os.RemoveAll(dir)
	o := s.o.Options
	o.Remote, o.Dir, o.Hydration, o.SharedCache = s.store, dir, tonbo.HydrateNone, -1
	db, err := tonbo.Open(c.ctx, c.name(), o)
	if err != nil {
		return tonbo.Point{}, err
	}
	p, err := db.Checkpoint(c.ctx, label)
	return p, errors.Join(err, db.Close())
}

// notOpen is tonbo.ErrBusy when somebody has the database open, as far as its log shows.
func (s *Server) notOpen(ctx context.Context, name string) error {
	for h, err := range s.client.History(ctx, name) {
		if err != nil {
			return err
		}
		if h.Kind == "close" || h.Kind == "create" {
			return nil
		}
		return &problem{Status: http.StatusConflict, Code: "busy", Detail: `somebody has the database open, or did not close it: {"take_over": true} takes it over, and fences that owner`}
	}
	return tonbo.ErrNotFound
}

func (s *Server) history(c *call) error {
	q, err := c.query(func(k string) bool { return k == "limit" || k == "cursor" })
	if err != nil {
		return err
	}
	limit, cursor, err := page(q)
	if err != nil {
		return err
	}
	before := uint64(math.MaxUint64)
	if cursor != "" {
		if before, err = strconv.ParseUint(cursor, 10, 64); err != nil || before == 0 {
			return badRequest("cursor: want the next_cursor of the page before")
		}
	}
	var answer struct {
		Data []view.Entry `json:"data"`
		Next string       `json:"next_cursor,omitempty"`
	}
	answer.Data = []view.Entry{}
	for h, err := range s.client.HistoryBefore(c.ctx, c.name(), before) {
		if err != nil {
			return err
		}
		if len(answer.Data) == limit {
			answer.Next = strconv.FormatUint(answer.Data[limit-1].Slot, 10)
			break
		}
		answer.Data = append(answer.Data, view.EntryOf(h))
	}
	return c.json(http.StatusOK, answer)
}

func (s *Server) export(c *call) error {
	q, err := c.query(func(k string) bool { return k == "at" })
	if err != nil {
		return err
	}
	point, err := at("at", q.Get("at"))
	if err != nil {
		return err
	}
	if c.r.Method == http.MethodHead { // no copy is made for that
		if _, err := s.client.Get(c.ctx, c.name()); err != nil {
			return err
		}
		c.w.Header().Set("Content-Type", sqliteType)
		c.w.WriteHeader(http.StatusOK)
		return nil
	}
	release, err := s.slot(c)
	if err != nil {
		return err
	}
	defer release()
	return s.client.Export(c.ctx, c.name(), point, &exportWriter{c: c, every: s.o.Timeout})
}

const sqliteType = "application/vnd.sqlite3"

// exportWriter begins the answer with the first bytes, so that what goes wrong before them still has a status. It is cut when it goes wrong later, also when the client takes it too slowly: it holds a slot, and the room of the database.
type exportWriter struct {
	c     *call
	every time.Duration // for a write, and for how far behind leastRate the client may be
	began time.Time
	bytes int64
}

// leastRate is how fast an export has to be taken on the whole, in bytes a second.
const leastRate = 32 << 10

func (w *exportWriter) Write(b []byte) (int, error) {
	if w.began.IsZero() {
		w.began = time.Now()
		h := w.c.w.Header()
		h.Set("Content-Type", sqliteType)
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Disposition", `attachment; filename="`+w.c.name()+`.db"`) // names have no quotes and no slashes
		w.c.w.WriteHeader(http.StatusOK)
	}
	left := w.every + time.Duration(float64(w.bytes)/leastRate*float64(time.Second)) - time.Since(w.began)
	if left <= 0 {
		return 0, fmt.Errorf("the client took %d bytes in %s", w.bytes, time.Since(w.began))
	}
	w.c.writing(min(w.every, left))
	n, err := w.c.w.Write(b)
	w.bytes += int64(n)
	return n, err
}

func (s *Server) usage(c *call) error {
	if c.name() == "" { // a look at everything
		release, err := s.slot(c)
		if err != nil {
			return err
		}
		defer release()
	}
	u, err := s.client.Usage(c.ctx, c.name())
	if err != nil {
		return err
	}
	return c.data(http.StatusOK, view.UsageOf(u))
}
