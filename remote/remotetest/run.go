// Package remotetest checks that a [remote.Store] keeps the promises of its interface. Every implementation runs it in its own
// tests; so should whoever writes another one:
//
//	func TestConformance(t *testing.T) {
//		remotetest.Run(t, func(t *testing.T) remote.Store { return mystore.New(...) })
//	}
//
// Each part works under a random prefix of its own, so one location can serve all of them and need not be empty, and deletes
// what it made.
package remotetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

// Option adapts the suite to a store.
type Option func(*config)

type config struct {
	keys, rounds int
	unique       bool
	noSwap       bool
	noDelete     bool
}

// Keys sets how many keys the listing part makes; default 1100, more than a page. For slow stores.
func Keys(n int) Option { return func(c *config) { c.keys = n } }

// Rounds sets how many keys 16 creators compete for; default 50.
func Rounds(n int) Option { return func(c *config) { c.rounds = n } }

// UniqueETags also asks that equal bodies, stored one after the other at one key, have different entity tags.
func UniqueETags() Option { return func(c *config) { c.unique = true } }

// NoSwap leaves out Swap, for stores without If-Match: expiry and metadata do not work on them.
func NoSwap() Option { return func(c *config) { c.noSwap = true } }

// NoDelete is for credentials that may not delete: the parts that need it are left out, and what the suite makes stays.
func NoDelete() Option { return func(c *config) { c.noDelete = true } }

// Run checks every promise of [remote.Store]. open returns a store to use; it may be the same one each time.
func Run(t *testing.T, open func(t *testing.T) remote.Store, options ...Option) {
	c := config{keys: 1100, rounds: 50}
	for _, o := range options {
		o(&c)
	}
	part := func(name string, f func(*suite)) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			s := &suite{T: t, config: c, ctx: ctx, Store: open(t), base: "t-" + rand.Text() + "/"}
			defer s.clean()
			f(s)
		})
	}
	part("CreatedObjectIsReadBack", created)
	part("TakenKeyIsRefusedAndKeepsItsBody", taken)
	part("OneOfSixteenCreatorsWins", race)
	part("EmptyBody", empty)
	part("BodyOfFiveMiB", large)
	part("BodyIsCopied", copied)
	part("PartsOfABody", ranges)
	part("IfMatch", ifMatch)
	part("AbsentKey", absent)
	part("KeysOfEveryKind", keys)
	part("BadKeysAreRefused", badKeys)
	part("ListIsInOrderAndPaged", list)
	part("ListKeepsNeighboursApart", neighbours)
	part("CancelledContext", cancelled)
	part("RequestsAreCounted", counts)
	part("ProbePasses", probe)
	if !c.noDelete {
		part("DeleteIsIdempotent", deleted)
		part("CreatedAgainHasANewETag", recreated)
	}
	if !c.noSwap {
		part("SwapNeedsTheCurrentETag", swap)
		part("OneOfSixteenSwapsWins", swapRace)
	}
}

type suite struct {
	*testing.T
	config
	remote.Store
	ctx  context.Context
	base string // prefix of this part's keys
}

func (s *suite) clean() {
	if s.noDelete {
		return
	}
	for {
		page, more, err := s.Store.List(s.ctx, s.base, remote.ListOptions{})
		if err != nil {
			s.Errorf("clean: %v", err)
			return
		}
		s.parallel(len(page), func(i int) error { return s.Store.Delete(s.ctx, page[i].Key) })
		if !more || s.Failed() {
			return
		}
	}
}

// parallel calls f for 0 to n-1, a few at a time.
func (s *suite) parallel(n int, f func(i int) error) {
	s.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					s.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// create makes an object that must not be there yet.
func (s *suite) create(key string, body []byte) (etag string) {
	s.Helper()
	etag, err := s.Store.Create(s.ctx, s.base+key, body)
	if err != nil {
		s.Fatalf("Create: %v", err)
	}
	if etag == "" {
		s.Fatalf("Create %s: no entity tag", key)
	}
	return etag
}

func (s *suite) get(key string, o remote.GetOptions) remote.Object {
	s.Helper()
	obj, err := s.Store.Get(s.ctx, s.base+key, o)
	if err != nil {
		s.Fatalf("Get %+v: %v", o, err)
	}
	return obj
}

func (s *suite) wantBody(key string, want []byte) {
	s.Helper()
	if got := s.get(key, remote.GetOptions{}).Body; !bytes.Equal(got, want) {
		s.Fatalf("body of %s: got %d bytes %.40q, want %d bytes %.40q", key, len(got), got, len(want), want)
	}
}

// wantErr checks an error's kind, and that it is one of the package's and names what it is about.
func (s *suite) wantErr(what string, err, kind error) {
	s.Helper()
	if !errors.Is(err, kind) {
		s.Fatalf("%s: got error %v, want %v", what, err, kind)
	}
	var e *remote.Error
	if !errors.As(err, &e) {
		s.Fatalf("%s: %T is no *remote.Error", what, err)
	}
	if e.Store != s.Store.String() || e.Op == "" {
		s.Errorf("%s: error does not name operation and store: %+v", what, e)
	}
}

func body(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func keysOf(page []remote.Info) []string {
	var k []string
	for _, i := range page {
		k = append(k, i.Key)
	}
	return k
}

func numbered(i int) string { return fmt.Sprintf("n/%05d", i) }
