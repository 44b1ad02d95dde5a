package access_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/server/internal/access"
)

// powers are all that a key may do now, as texts: what it may do with each of some names, and which keys it may make. They are asked of the key that its secret verifies as, as a request would.
func powers(t *testing.T, k *access.Keys, secret string) map[string]bool {
	t.Helper()
	key, err := k.Verify(t.Context(), secret)
	if errors.Is(err, access.ErrRefused) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	can := map[string]bool{}
	for _, name := range append(names, "") {
		for a := access.ReadDatabase; a <= access.MakeKeys; a++ {
			if key.May(a, name) == nil {
				can[fmt.Sprint("action ", a, " on ", name)] = true
			}
		}
	}
	for _, role := range []access.Role{access.Owner, access.Admin, access.Member} {
		for _, id := range []access.Identity{key.Identity, {ID: "somebody", Kind: access.Agent}} {
			// Nothing that expires at once is too wide for anybody by its time alone.
			if key.Covers(&access.Key{Role: role, Identity: id, ExpiresAt: time.Unix(1, 0)}) == nil {
				can[fmt.Sprint("make ", role, " of another: ", id != key.Identity)] = true
			}
		}
	}
	for _, id := range []access.Identity{{ID: "a", Kind: access.Agent}, {ID: "b", Kind: access.Agent}, {ID: "owner", Kind: access.User}, {ID: "u", Kind: access.User}} {
		if key.May(access.ListKeys, "") == nil && key.Sees(&access.Key{Identity: id}) {
			can[fmt.Sprint("see the keys of ", id)] = true
		}
	}
	return can
}

var names = []string{"run-1", "run-10", "run-2", "other", "run", "ru", "x"}

// randomSpec asks for anything, possible or not.
func randomSpec(r *rand.Rand, now time.Time) access.Spec {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	s := access.Spec{Name: "k", Role: access.Role(pick("", "", "", "", "owner", "admin", "member", "member", "root")), ReadOnly: r.IntN(8) == 0}
	switch r.IntN(8) {
	case 0:
		s.Agent = pick("a", "b")
	case 1:
		s.User = pick("owner", "u")
	}
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(2) {
			s.Databases = append(s.Databases, pick(names...))
		}
	}
	if r.IntN(4) == 0 {
		s.Prefixes = append(s.Prefixes, pick("run-", "run-1", "r", "", "o", "../"))
	}
	if r.IntN(3) == 0 {
		s.ExpiresAt = now.Add(time.Duration(r.IntN(20)-3) * time.Minute)
	}
	return s
}

// Whoever holds a key, and does with it and with all that it makes whatever he likes, never holds one that may do more, now or later.
func TestNoSequenceOfKeyMakingsWidensReach(t *testing.T) {
	seeds := 150
	if testing.Short() {
		seeds = 20
	}
	learned, total, compared := 0, 0, 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		c := newClock()
		k := keysOn(mem.New("m"), c)
		o, _ := owner(t, k)
		// Others' keys, of all kinds, to rotate and revoke.
		ids := []string{o.ID}
		holders := []*access.Key{o}
		var start string
		for range 8 {
			by := holders[r.IntN(len(holders))]
			key, secret, err := k.Make(t.Context(), by, randomSpec(r, c.now()))
			if err != nil {
				continue
			}
			ids = append(ids, key.ID)
			holders = append(holders, key)
			start = secret
		}
		if start == "" {
			continue
		}
		mine := []string{start}
		for range 25 {
			by, err := k.Verify(t.Context(), mine[r.IntN(len(mine))])
			if err != nil {
				continue
			}
			var secret string
			switch r.IntN(5) {
			case 0:
				_, secret, err = k.Rotate(t.Context(), by, ids[r.IntN(len(ids))])
			case 1:
				if id := ids[r.IntN(len(ids))]; id != by.ID && id != ids[len(ids)-1] {
					err = k.Revoke(t.Context(), by, id)
				}
			default:
				var key *access.Key
				if key, secret, err = k.Make(t.Context(), by, randomSpec(r, c.now())); err == nil {
					ids = append(ids, key.ID)
				}
			}
			if total++; err == nil && secret != "" {
				mine = append(mine, secret)
				learned++
			}
		}
		if _, err := k.Verify(t.Context(), start); err != nil { // rotated or revoked with the rest: nothing to compare with
			continue
		}
		compared++
		for range 20 { // now, and as time goes by
			could := powers(t, k, start)
			for _, secret := range mine[1:] {
				for p := range powers(t, k, secret) {
					if !could[p] {
						t.Fatalf("seed %d: a key that was made or rotated can %q, the one that all came from cannot", seed, p)
					}
				}
			}
			c.advance(time.Minute)
		}
	}
	if learned < seeds || compared < seeds/2 {
		t.Errorf("%d secrets were learned in %d tries, and %d seeds compared: the test does not test", learned, total, compared)
	}
}
