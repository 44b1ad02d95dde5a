package access_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/server/internal/access"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// clock is one that stands until it is moved.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

const cached = 3 * time.Second

func keysOn(s remote.Store, c *clock) *access.Keys {
	return access.NewKeys(s, access.Options{Cache: cached, Now: c.now})
}

// owner makes the first key and returns it.
func owner(t *testing.T, k *access.Keys) (*access.Key, string) {
	t.Helper()
	secret, err := k.MakeOwner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return verified(t, k, secret), secret
}

func verified(t *testing.T, k *access.Keys, secret string) *access.Key {
	t.Helper()
	key, err := k.Verify(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func refused(t *testing.T, k *access.Keys, secret, why string) {
	t.Helper()
	if key, err := k.Verify(t.Context(), secret); !errors.Is(err, access.ErrRefused) {
		t.Errorf("%s: got %v, %v, want ErrRefused", why, key, err)
	}
}

func made(t *testing.T, k *access.Keys, by *access.Key, s access.Spec) (*access.Key, string) {
	t.Helper()
	if s.Name == "" {
		s.Name = "a key"
	}
	key, secret, err := k.Make(t.Context(), by, s)
	if err != nil {
		t.Fatal(err)
	}
	return key, secret
}

func TestSecretIsNowhereInTheStore(t *testing.T) {
	store, c := mem.New("m"), newClock()
	k := keysOn(store, c)
	o, first := owner(t, k)
	key, second := made(t, k, o, access.Spec{})
	_, third, err := k.Rotate(t.Context(), o, key.ID)
	if err != nil {
		t.Fatal(err)
	}
	infos, _, err := store.List(t.Context(), "", remote.ListOptions{})
	if err != nil || len(infos) != 3 {
		t.Fatal(infos, err)
	}
	for _, i := range infos {
		o, err := store.Get(t.Context(), i.Key, remote.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{first, second, third} {
			if random := s[strings.LastIndexByte(s, '_')+1:]; len(random) != 43 || strings.Contains(i.Key+string(o.Body), random) {
				t.Errorf("%s holds the secret of a key", i.Key)
			}
		}
	}
}

func TestOnlyTheSecretOfAKeyInForceIsTaken(t *testing.T) {
	c := newClock()
	k := keysOn(mem.New("m"), c)
	o, secret := owner(t, k)
	_, other := made(t, k, o, access.Spec{})
	mixed := secret[:len("tbo_")+20] + other[len("tbo_")+20:]
	for _, s := range []string{"", "tbo_", secret + "x", secret[:len(secret)-1], strings.ToUpper(secret), " " + secret, mixed, strings.Replace(secret, "owner", "0wner", 1), "tbo_" + strings.Repeat("/", 20) + "_" + strings.Repeat("a", 43)} {
		refused(t, k, s, s)
	}
	verified(t, k, secret)
}

func TestRevokedAndRotatedKeysAreRefusedByTheNextRequest(t *testing.T) {
	store, c := mem.New("m"), newClock()
	here, there := keysOn(store, c), keysOn(store, c)
	o, _ := owner(t, here)
	key, old := made(t, here, o, access.Spec{})
	verified(t, here, old)
	verified(t, there, old)

	_, next, err := here.Rotate(t.Context(), o, key.ID)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, here, old, "the old secret, where the key was rotated")
	verified(t, here, next)
	verified(t, there, next) // the old verdict there does not stand in its way
	refused(t, there, old, "the old secret at another server that has seen the new one")

	if err := here.Revoke(t.Context(), o, key.ID); err != nil {
		t.Fatal(err)
	}
	refused(t, here, next, "revoked here")
	c.advance(cached)
	refused(t, there, next, "revoked elsewhere, after the verdict's time")
	if err := here.Revoke(t.Context(), o, key.ID); err != nil {
		t.Error("revoked twice:", err)
	}
	if _, _, err := here.Rotate(t.Context(), o, key.ID); !errors.Is(err, access.ErrNotFound) {
		t.Error("a revoked key was rotated:", err)
	}
}

func TestVerdictsAreUsedAgain(t *testing.T) {
	counter, c := new(remote.Counter), newClock()
	store := remote.Counted(mem.New("m"), counter)
	k := keysOn(store, c)
	o, _ := owner(t, k)
	_, secret := made(t, k, o, access.Spec{Databases: []string{"run-1"}})
	verified(t, k, secret)
	before := counter.Counts()
	for range 100 {
		verified(t, k, secret)
	}
	if after := counter.Counts(); after != before {
		t.Errorf("100 requests cost %+v, then %+v", before, after)
	}
	c.advance(cached)
	verified(t, k, secret)
	if after := counter.Counts(); after.List != before.List+2 || after.Get != before.Get { // the key's log, the database's
		t.Errorf("a verdict made again: %+v, then %+v", before, after)
	}
}

func TestKeysExpire(t *testing.T) {
	c := newClock()
	k := keysOn(mem.New("m"), c)
	o, _ := owner(t, k)
	key, secret := made(t, k, o, access.Spec{ExpiresAt: c.now().Add(time.Second)})
	verified(t, k, secret)
	c.advance(time.Second)
	refused(t, k, secret, "expired, the verdict still in the cache")
	// And what it made does not outlive it.
	c.advance(-time.Second)
	child, _ := made(t, k, key, access.Spec{})
	if !child.ExpiresAt.Equal(key.ExpiresAt) {
		t.Error(child.ExpiresAt)
	}
	if _, _, err := k.Make(t.Context(), key, access.Spec{Name: "x", ExpiresAt: key.ExpiresAt.Add(1)}); !errors.Is(err, access.ErrWider) {
		t.Error(err)
	}
}

func TestKeyDiesWithTheDatabaseThatItNames(t *testing.T) {
	store, c := mem.New("m"), newClock()
	k := keysOn(store, c)
	o, _ := owner(t, k)
	client, err := tonbo.NewClient(tonbo.Options{Remote: store, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	create := func(name string) {
		t.Helper()
		if _, err := client.Create(ctx, name, tonbo.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := client.Delete(ctx, name); err != nil {
			t.Fatal(err)
		}
		c.advance(cached)
	}
	_, early := made(t, k, o, access.Spec{Databases: []string{"run-1"}}) // before it exists
	_, both := made(t, k, o, access.Spec{Databases: []string{"run-1", "run-2"}})
	_, prefix := made(t, k, o, access.Spec{Databases: []string{"run-1"}, Prefixes: []string{"x-"}})
	_, wide := made(t, k, o, access.Spec{Prefixes: []string{"run-"}})
	verified(t, k, early)
	create("run-1")
	_, late := made(t, k, o, access.Spec{Databases: []string{"run-1"}})
	verified(t, k, early)
	verified(t, k, late)
	// Owners come and go.
	for range 2 {
		db, err := client.Open(ctx, "run-1")
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(cached)
	verified(t, k, early)
	verified(t, k, late)

	for again := range 2 {
		remove("run-1")
		refused(t, k, early, "made before, deleted")
		refused(t, k, late, "made after, deleted")
		create("run-1")
		c.advance(cached)
		refused(t, k, early, "made before, created again")
		refused(t, k, late, "made after, created again")
		if key := verified(t, k, both); key.Reaches("run-1") || !key.Reaches("run-2") || !key.Narrowed() {
			t.Errorf("round %d: %+v", again, key)
		}
		if key := verified(t, k, prefix); key.Reaches("run-1") || !key.Reaches("x-1") {
			t.Errorf("round %d: %+v", again, key)
		}
		if key := verified(t, k, wide); !key.Reaches("run-1") {
			t.Errorf("round %d: %+v", again, key)
		}
	}
	// A key for the name that is made now is for the one that lives now; one made between two is for the next one.
	_, now := made(t, k, o, access.Spec{Databases: []string{"run-1"}})
	verified(t, k, now)
	remove("run-1")
	refused(t, k, now, "the third one, deleted")
	_, between := made(t, k, o, access.Spec{Databases: []string{"run-1"}})
	verified(t, k, between)
	create("run-1")
	c.advance(cached)
	verified(t, k, between)
	remove("run-1")
	refused(t, k, between, "the fourth one, deleted")
	// Where the deletion is known, no verdict outlives it.
	create("run-5")
	_, fast := made(t, k, o, access.Spec{Databases: []string{"run-5"}})
	verified(t, k, fast)
	if err := client.Delete(ctx, "run-5"); err != nil {
		t.Fatal(err)
	}
	k.Ended("run-5")
	refused(t, k, fast, "told of the deletion")
}

func TestTwoServersMakeOneOwnerKey(t *testing.T) {
	store, c := mem.New("m"), newClock()
	var wg sync.WaitGroup
	secrets := make(chan string, 8)
	for range 8 {
		wg.Go(func() {
			secret, err := keysOn(store, c).MakeOwner(context.Background())
			if err == nil {
				secrets <- secret
			} else if !errors.Is(err, access.ErrHasOwner) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(secrets)
	if len(secrets) != 1 {
		t.Fatalf("%d owner keys", len(secrets))
	}
	k := keysOn(store, c)
	secret := <-secrets
	o := verified(t, k, secret)
	if err := k.RegisterOwner(t.Context(), secret); err != nil {
		t.Error(err)
	}
	if err := k.RegisterOwner(t.Context(), access.NewOwnerSecret()); !errors.Is(err, access.ErrHasOwner) {
		t.Error(err)
	}
	_, other := made(t, k, o, access.Spec{})
	if err := k.RegisterOwner(t.Context(), other); err == nil {
		t.Error("another key's secret was taken for the owner's")
	}
	// Revoked, it can be made again, and the old secret stays dead.
	if err := k.Revoke(t.Context(), o, o.ID); err != nil {
		t.Fatal(err)
	}
	refused(t, k, secret, "revoked")
	again, err := k.MakeOwner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	verified(t, k, again)
	refused(t, k, secret, "revoked, another one made")
}

func TestStoreThatDoesNotAnswerIsNoRefusal(t *testing.T) {
	c := newClock()
	store := tonbotest.NewStore(mem.New("m"))
	k := keysOn(store, c)
	_, secret := owner(t, k)
	verified(t, k, secret)
	c.advance(cached)
	store.Partition(true)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if key, err := k.Verify(ctx, secret); key != nil || err == nil || errors.Is(err, access.ErrRefused) {
		t.Error(key, err)
	}
	store.Partition(false)
	verified(t, k, secret)
}

func TestListingShowsWhatOneMayKnow(t *testing.T) {
	c := newClock()
	k := keysOn(mem.New("m"), c)
	o, _ := owner(t, k)
	agent, _ := made(t, k, o, access.Spec{Agent: "a"})
	other, _ := made(t, k, o, access.Spec{Agent: "b"})
	made(t, k, agent, access.Spec{Databases: []string{"x"}})
	revoked, _ := made(t, k, agent, access.Spec{})
	if err := k.Revoke(t.Context(), agent, revoked.ID); err != nil {
		t.Fatal(err)
	}
	all := func(by *access.Key, page int) (n int, states string) {
		t.Helper()
		after := ""
		for {
			keys, more, err := k.List(t.Context(), by, after, page)
			if err != nil || len(keys) > page {
				t.Fatal(keys, err)
			}
			for _, key := range keys {
				n++
				after = key.ID
				states += key.State[:1]
			}
			if !more {
				return n, states
			}
		}
	}
	for _, page := range []int{1, 2, 100} {
		if n, states := all(o, page); n != 5 || strings.Count(states, "r") != 1 {
			t.Errorf("the owner sees %d keys: %s", n, states)
		}
		if n, _ := all(agent, page); n != 3 {
			t.Errorf("an agent sees %d keys", n)
		}
		if n, _ := all(other, page); n != 1 {
			t.Errorf("another agent sees %d keys", n)
		}
	}
	for _, err := range []error{
		k.Revoke(t.Context(), other, agent.ID),
		k.Revoke(t.Context(), other, "0123456789abcdefghij"),
		k.Revoke(t.Context(), other, "../../names/run-1"),
	} {
		if !errors.Is(err, access.ErrNotFound) {
			t.Error(err)
		}
	}
}
