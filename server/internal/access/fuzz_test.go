package access_test

import (
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/server/internal/access"
)

// FuzzKeyObject puts what is not a key's entry where one was: it opens nothing, and what it narrows stays narrowed.
func FuzzKeyObject(f *testing.F) {
	c := newClock()
	store := mem.New("fuzz")
	k := access.NewKeys(store, access.Options{Now: c.now})
	secret, err := k.MakeOwner(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	infos, _, err := store.List(f.Context(), access.Prefix, remote.ListOptions{})
	if err != nil || len(infos) != 1 {
		f.Fatal(infos, err)
	}
	o, err := store.Get(f.Context(), infos[0].Key, remote.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	good := string(o.Body)
	for _, s := range []string{
		good, "", "{", "null", "[]", good[:len(good)/2],
		strings.Replace(good, `"make"`, `"revoke"`, 1),
		strings.Replace(good, `"owner","identity"`, `"root","identity"`, 1),
		strings.Replace(good, `"role"`, `"prefixes":["run-"],"role"`, 1),
		strings.Replace(good, `"role"`, `"databases":[{"name":"run-1"},{"name":""}],"role"`, 1),
		strings.Replace(good, `"role"`, `"narrow":true,"role"`, 1),
		strings.Replace(good, `"format":1`, `"format":2`, 1),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		now, err := store.Get(t.Context(), o.Key, remote.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Swap(t.Context(), o.Key, now.ETag, []byte(body)); err != nil {
			t.Fatal(err)
		}
		key, err := k.Verify(t.Context(), secret)
		if err != nil {
			return
		}
		switch {
		case !key.Role.Valid():
			t.Errorf("%s: role %q", body, key.Role)
		case !key.Narrowed() && len(key.Databases)+len(key.Prefixes) > 0:
			t.Errorf("%s: reaches all", body)
		}
		if _, _, err := k.List(t.Context(), key, "", 10); err != nil {
			t.Errorf("%s: verified, and cannot be listed: %v", body, err)
		}
	})
}

func FuzzSecret(f *testing.F) {
	store := mem.New("fuzz")
	k := access.NewKeys(store, access.Options{})
	secret, err := k.MakeOwner(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"", "tbo_", secret[:30], strings.ToLower(secret), secret + "\n", strings.Replace(secret, "_", "/", 2)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if key, err := k.Verify(t.Context(), s); (key != nil) != (s == secret) || (err == nil) != (s == secret) {
			t.Errorf("%q: %v, %v", s, key, err)
		}
	})
}
