package tonbo_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/server"
)

// TestObjectsOfANewerVersionAreRefusedAndLeftAlone: each kind of object, when it says that it is of a format that this version does not know: what needs it says so and leaves it alone, and what does not need it works.
func TestObjectsOfANewerVersionAreRefusedAndLeftAlone(t *testing.T) {
	ctx := t.Context()
	files, err := filepath.Glob(filepath.Join("testdata", "remotes", "*.zip"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden remotes (%v)", err)
	}
	format := regexp.MustCompile(`"format":[0-9]+`)
	newFormat := func(b []byte) []byte { return format.ReplaceAllLiteral(b, []byte(`"format":99`)) }
	newKind := func(b []byte) []byte {
		return bytes.Replace(b, []byte(`"kind":"`), []byte(`"kind":"un`), 1)
	}
	owner := func(a *account) error {
		db, err := tonbo.Open(ctx, "main", a.machine())
		if err == nil {
			err = errors.Join(errors.New("opened"), db.Close())
		}
		return err
	}
	reader := func(a *account) error {
		o := a.machine()
		o.Hydration = tonbo.HydrateFull
		db, err := tonbo.OpenReadOnly(ctx, "main", o)
		if err == nil {
			err = errors.Join(errors.New("opened"), db.Close())
		}
		return err
	}
	verify := func(a *account) error { // who opens it reads segments from their ends, by what the base says of them
		r, err := client(t, a).Verify(ctx, "main")
		if err != nil {
			return err
		}
		for _, p := range r.Problems {
			err = errors.Join(err, p.Err)
		}
		return err
	}
	get := func(a *account) error { _, err := client(t, a).Get(ctx, "main"); return err }
	list := func(a *account) error {
		for _, err := range client(t, a).List(ctx, tonbo.Filter{}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	instance := func(a *account) error { _, err := client(t, a).Instances().Get(ctx, "customer:1"); return err }
	ensure := func(a *account) error {
		_, err := client(t, a).Instances().Ensure(ctx, "customer:1", tonbo.EnsureOptions{})
		return err
	}
	create := func(a *account) error {
		_, err := client(t, a).Create(ctx, "main", tonbo.CreateOptions{Metadata: map[string]string{"task": "42"}, IdempotencyKey: "made-once", ExpiresAt: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)})
		return err
	}
	for name, c := range map[string]struct {
		prefix string // of the keys: all of them
		change func([]byte) []byte
		calls  map[string]func(*account) error
	}{
		"entry version":   {"db/main/log/", func(b []byte) []byte { b[8] = 2; return resealed(b) }, map[string]func(*account) error{"Open": owner, "OpenReadOnly": reader, "Get": get}},
		"entry kind":      {"db/main/log/", func(b []byte) []byte { b[10] = 9; return resealed(b) }, map[string]func(*account) error{"Open": owner, "OpenReadOnly": reader, "Get": get}},
		"entry flag":      {"db/main/log/", func(b []byte) []byte { b[136] |= 16; return resealed(b) }, map[string]func(*account) error{"Open": owner, "OpenReadOnly": reader, "Get": get}},
		"segment version": {"db/main/seg/", func(b []byte) []byte { b[8] = 2; return resealed(b) }, map[string]func(*account) error{"Verify": verify}},
		"base manifest":   {"db/main/base/", newFormat, map[string]func(*account) error{"Open": owner, "OpenReadOnly": reader}},
		"index record":    {"names/main/", newFormat, map[string]func(*account) error{"Open": owner, "Get": get, "List": list}},
		"attempt":         {"idem/", newFormat, map[string]func(*account) error{"Create": create}},
		"binding":         {"instances/customer:1/", newFormat, map[string]func(*account) error{"Get": instance, "Ensure": ensure}},
		"kind of binding": {"instances/customer:1/", newKind, map[string]func(*account) error{"Get": instance, "Ensure": ensure}},
		"server's key":    {"keys/", newFormat, nil},
		"kind of key":     {"keys/", newKind, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, want := readRemote(t, files[0])
			n := 0
			for _, key := range slices.Sorted(maps.Keys(objects(t, a.store))) {
				if !strings.HasPrefix(key, c.prefix) {
					continue
				}
				o, err := a.store.Get(ctx, key, remote.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if b := c.change(bytes.Clone(o.Body)); !bytes.Equal(b, o.Body) {
					if err := a.store.Delete(ctx, key); err != nil {
						t.Fatal(err)
					}
					if _, err := a.store.Create(ctx, key, b); err != nil {
						t.Fatal(err)
					}
					n++
				}
			}
			if n == 0 {
				t.Fatal("nothing was changed")
			}
			before := objects(t, a.store)
			for call, do := range c.calls {
				err := do(a)
				if err == nil || !strings.Contains(err.Error(), "update") || call != "Verify" && !errors.Is(err, tonbo.ErrUnsupported) {
					t.Errorf("%s: %v", call, err)
				}
				if errors.Is(err, tonbo.ErrNotFound) {
					t.Errorf("%s takes it for absent: %v", call, err)
				}
			}
			if c.prefix == "keys/" {
				s, err := server.New(server.Options{Options: tonbo.Options{Remote: a.store, Dir: t.TempDir()}})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				for _, secret := range []string{want.KeySecret, want.Revoked} {
					r := httptest.NewRequestWithContext(ctx, "GET", "/v1/databases/main", nil)
					r.Header.Set("Authorization", "Bearer "+secret)
					w := httptest.NewRecorder()
					s.ServeHTTP(w, r)
					if w.Code == http.StatusOK {
						t.Errorf("a key is let in")
					}
				}
			}
			after := objects(t, a.store)
			for key, o := range before {
				if after[key] != o {
					t.Errorf("%s has changed or is gone", key)
				}
				delete(after, key)
			}
			for key := range after { // Open reads manifest and record beside its claim
				if !strings.HasPrefix(key, "db/main/log/") {
					t.Errorf("%s was made", key)
				}
			}
			// What is beside it works.
			ro := readOnly(t, a, "again", nil)
			if got := contentDigest(t, ro); got != want.Databases["again"].Head {
				t.Errorf("another database: %s", got)
			}
		})
	}
}

// resealed makes the header checksum of an entry fit.
func resealed(b []byte) []byte {
	n := binary.LittleEndian.Uint32(b[12:])
	binary.LittleEndian.PutUint64(b[n-8:], xxhash.Sum64(b[:n-8]))
	return b
}
