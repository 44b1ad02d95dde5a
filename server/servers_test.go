package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/server"
)

func TestTwoServersOnOneStoreAreOne(t *testing.T) {
	w := newWorld(t, func(o *server.Options) { o.KeyCache = -1 }) // no verdict is used again: what one did the other knows
	b := w.serve(func(o *server.Options) { o.KeyCache = -1 })
	a := w.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-1"}`, "Idempotency-Key", "once")
	again := b.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-1"}`, "Idempotency-Key", "once")
	if a.text("id") != again.text("id") || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s\n%s", a.Body, again.Body)
	}
	key := w.want(201, "POST", "/v1/api-keys", w.owner, `{"name":"x","databases":["run-1"]}`)
	b.want(200, "GET", "/v1/databases/run-1", key.text("secret"), "")
	rotated := b.want(200, "POST", "/v1/api-keys/"+key.text("id")+"/rotate", w.owner, "")
	w.want(401, "GET", "/v1/databases/run-1", key.text("secret"), "")
	w.want(200, "GET", "/v1/databases/run-1", rotated.text("secret"), "")
	b.want(204, "DELETE", "/v1/databases/run-1", w.owner, "")
	w.want(401, "GET", "/v1/databases/run-1", rotated.text("secret"), "")
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-1"}`)
	b.want(401, "GET", "/v1/databases/run-1", rotated.text("secret"), "")
	b.want(200, "GET", "/v1/databases/run-1", w.owner, "")
}

// One key and one name, many requests at once at two servers: one database.
func TestOneIdempotencyKeyMakesOneDatabaseWhicheverServerIsAsked(t *testing.T) {
	w := newWorld(t)
	b := w.serve()
	var mu sync.Mutex
	ids := map[string]int{}
	var wg sync.WaitGroup
	for i := range 16 {
		f := w.front
		if i%2 == 0 {
			f = b
		}
		wg.Go(func() {
			a := f.do("POST", "/v1/databases", w.owner, `{"name":"run-1","ttl":"1h"}`, "Idempotency-Key", "once")
			mu.Lock()
			defer mu.Unlock()
			if a.Status != 201 {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			ids[a.text("id")]++
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Errorf("%d databases: %v", len(ids), ids)
	}
}

func TestRevokedKeyIsRefusedEverywhereWithinTheCachesTime(t *testing.T) {
	w := newWorld(t)
	b := w.serve()
	var later atomic.Int64
	b.s.SetClock(func() time.Time { return time.Now().Add(time.Duration(later.Load())) })
	key := w.want(201, "POST", "/v1/api-keys", w.owner, `{"name":"x"}`)
	w.want(200, "GET", "/v1/databases", key.text("secret"), "")
	b.want(200, "GET", "/v1/databases", key.text("secret"), "")
	w.want(204, "DELETE", "/v1/api-keys/"+key.text("id"), w.owner, "")
	w.want(401, "GET", "/v1/databases", key.text("secret"), "")
	later.Store(int64(5 * time.Second))
	b.want(401, "GET", "/v1/databases", key.text("secret"), "")
}

func TestPagesOfAListingAreTheListing(t *testing.T) {
	w := newWorld(t)
	want := map[string]bool{}
	for i := range 23 {
		for _, prefix := range []string{"run-", "other-"} {
			name := fmt.Sprintf("%s%d", prefix, i)
			w.want(201, "POST", "/v1/databases", w.owner, `{"name":"`+name+`","metadata":{"odd":"`+fmt.Sprint(i%2 == 1)+`"}}`)
			want[name] = true
		}
	}
	for _, name := range []string{"run-1-a", "run-1.a", "run-1:a", "golden"} {
		w.want(201, "POST", "/v1/databases", w.owner, `{"name":"`+name+`"}`)
		want[name] = true
	}
	named := w.key(`{"name":"n","databases":["golden","run-2","run-1","run-22","nothing"],"database_prefixes":["other-1"]}`)
	mixed := w.key(`{"name":"n","databases":["golden","run-3"],"database_prefixes":["run-","run-1","o"]}`)
	for _, c := range []struct {
		secret, query string
		fits          func(string) bool
	}{
		{w.owner, "", func(string) bool { return true }},
		{w.owner, "&prefix=run-1", func(n string) bool { return strings.HasPrefix(n, "run-1") }},
		{named, "", func(n string) bool {
			return n == "golden" || n == "run-2" || n == "run-1" || n == "run-22" || strings.HasPrefix(n, "other-1")
		}},
		{named, "&prefix=run-", func(n string) bool { return n == "run-2" || n == "run-1" || n == "run-22" }},
		{named, "&metadata.odd=true", func(n string) bool {
			return n == "run-1" || strings.HasPrefix(n, "other-1") && (len(n) == 7 || strings.ContainsAny(n[7:], "13579"))
		}},
		{mixed, "", func(string) bool { return true }},
		{mixed, "&metadata[odd]=nothing", func(string) bool { return false }},
	} {
		for _, limit := range []int{1, 7, 1000} {
			got, cursor, order := map[string]bool{}, "", ""
			for {
				a := w.want(200, "GET", fmt.Sprintf("/v1/databases?limit=%d&cursor=%s%s", limit, cursor, c.query), c.secret, "")
				var page struct {
					Data []struct{ Name string }
					Next string `json:"next_cursor"`
				}
				if err := json.Unmarshal(a.Body, &page); err != nil || len(page.Data) > limit {
					t.Fatalf("%s", a.Body)
				}
				for _, d := range page.Data {
					if d.Name+"/" <= order || got[d.Name] {
						t.Errorf("limit %d: %s comes behind %s", limit, d.Name, order)
					}
					order = d.Name + "/"
					got[d.Name] = true
				}
				if cursor = page.Next; cursor == "" {
					break
				}
			}
			for n := range want {
				if got[n] != c.fits(n) {
					t.Errorf("%q, limit %d: %s listed %v", c.query, limit, n, got[n])
				}
			}
		}
	}
	for _, q := range []string{"?limit=0", "?limit=1001", "?limit=x", "?cursor=../x", "?perfix=run-", "?prefix=a&prefix=b", "?state=alive", "?prefix=%2F", "?metadata.=x", "?;"} {
		if a := w.do("GET", "/v1/databases"+q, w.owner, ""); a.Status != 400 {
			t.Errorf("%s: %d %s", q, a.Status, a.Body)
		}
	}
}

// TestRevokingRacesWithUse: while two servers answer a key as fast as they can, it is revoked, or rotated, at one of them. What begins at that one after the answer is refused; at the other one what begins after the time of a verdict.
// The new secret is good at both at once.
func TestRevokingRacesWithUse(t *testing.T) {
	const cache = 100 * time.Millisecond
	tune := func(o *server.Options) { o.KeyCache, o.Logger = cache, nil }
	w := newWorld(t, tune)
	b := w.serve(tune)
	for round := range 6 {
		key := w.want(201, "POST", "/v1/api-keys", w.owner, `{"name":"x"}`)
		secret, rotate := key.text("secret"), round%2 == 1
		var ended atomic.Pointer[time.Time] // when the answer had come
		var wg sync.WaitGroup
		for i, f := range []*front{w.front, b, w.front, b} {
			lag := time.Duration(0)
			if f == b {
				lag = cache
			}
			wg.Go(func() {
				for refused := 0; refused < 10; {
					after, began := ended.Load(), time.Now()
					status := f.do("GET", "/v1/databases?limit=1", secret, "").Status
					switch {
					case status == 401:
						refused++
					case status != 200:
						t.Errorf("got %d", status)
						return
					case after != nil && began.Sub(*after) > lag:
						t.Errorf("worker %d: taken %s after it had ended, rotated: %v", i, began.Sub(*after), rotate)
						return
					}
				}
			})
		}
		for _, f := range []*front{w.front, b} { // both have a verdict
			f.want(200, "GET", "/v1/databases?limit=1", secret, "")
		}
		if rotate {
			next := w.want(200, "POST", "/v1/api-keys/"+key.text("id")+"/rotate", w.owner, "").text("secret")
			at := time.Now()
			ended.Store(&at)
			for _, f := range []*front{w.front, b} {
				f.want(200, "GET", "/v1/databases?limit=1", next, "")
			}
		} else {
			w.want(204, "DELETE", "/v1/api-keys/"+key.text("id"), w.owner, "")
			at := time.Now()
			ended.Store(&at)
		}
		wg.Wait()
	}
}
