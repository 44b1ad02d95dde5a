package objects_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/objects"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// TestNarrowedKeyWritesNothingToAFrozenDatabase: the flag alone does not let an entry through.
func TestNarrowedKeyWritesNothingToAFrozenDatabase(t *testing.T) {
	p := newPlane(t, objects.Options{})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	const name = "run-2"
	if err := p.c.Freeze(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []segment.Kind{segment.KindClaim, segment.KindCommit, segment.KindClose} {
		h := p.claim(name)
		h.Kind, h.Flags = kind, segment.FlagFrozen
		if kind != segment.KindClaim {
			h.Generation = p.head(name).Generation
		}
		if got := p.put("runs", name, h); got.code != "entry_refused" {
			t.Errorf("an entry of kind %d behind a freeze: %d %s", kind, got.status, got.body)
		}
	}
	if err := p.c.Thaw(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if got := p.put("runs", name, p.claim(name)); got.status != 201 {
		t.Errorf("a claim behind a thaw: %d %s", got.status, got.body)
	}
}

// TestBaseOfAnEndedIncarnationIsNotPutInForce: it may name what that one stood on, and the present one does not.
func TestBaseOfAnEndedIncarnationIsNotPutInForce(t *testing.T) {
	p := newPlane(t, objects.Options{})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	ctx := t.Context()
	const name = "run-3"
	if _, err := p.c.Fork(ctx, "golden", name, tonbo.ForkOptions{}); err != nil {
		t.Fatal(err)
	}
	before := p.head(name).Generation
	if err := p.c.Delete(ctx, name); err != nil {
		t.Fatal(err)
	}
	if _, err := p.c.Create(ctx, name, tonbo.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	now := p.head(name).Generation
	for _, c := range []struct {
		generation uint64
		code       string
	}{{before, "entry_refused"}, {now, ""}} {
		g, code := c.generation, c.code
		h := p.claim(name)
		h.Kind, h.Generation = segment.KindBase, now
		h.Base = fmt.Sprintf("db/%s/base/%016x-%016x-%s", name, g, g, strings.Repeat("0", 32))
		if got := p.put("runs", name, h); got.code != code {
			t.Errorf("a base of generation %d, of an incarnation that began at %d: %d %s", g, now, got.status, got.body)
		}
	}
}

// TestBindingThatNamesAnotherDatabaseIsOutOfReach: who reaches an instance key and not its database learns neither name nor id, here as in the control plane.
func TestBindingThatNamesAnotherDatabaseIsOutOfReach(t *testing.T) {
	p := newPlane(t, objects.Options{})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	for key, database := range map[string]string{"run-a": "other", "run-b": "run-2"} {
		if _, err := p.c.Instances().Bind(t.Context(), key, database); err != nil {
			t.Fatal(err)
		}
	}
	foreign, own := p.keys("instances/run-a/")[0], p.keys("instances/run-b/")[0]
	for _, header := range [][]string{nil, {"Range", "bytes=0-9"}, {"Range", "bytes=60-"}} {
		for _, method := range []string{"GET", "HEAD"} {
			if got := p.do("runs", method, path("", foreign), nil, header...); got.status != 404 || strings.Contains(got.body, "other") || got.header.Get("Etag") != "" {
				t.Errorf("%s %v of a binding to another database: %d %s", method, header, got.status, got.body)
			}
		}
		if got := p.do("runs", "GET", path("", own), nil, header...); got.status/100 != 2 {
			t.Errorf("GET %v of a binding within reach: %d %s", header, got.status, got.body)
		}
	}
}

// TestListingThatEndsWithinPinsTellsOfNoOther: whether there is more must not tell of forks that the key does not reach, however the prefix is cut.
func TestListingThatEndsWithinPinsTellsOfNoOther(t *testing.T) {
	p := newPlane(t, objects.Options{})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	for _, fork := range []string{"run-4", "secret"} {
		if _, err := p.c.Fork(t.Context(), "run-2", fork, tonbo.ForkOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"db/run-2/p", "db/run-2/pi", "db/run-2/pin", "db/run-2/pin/"} {
		got := p.do("runs", "GET", path("", "")+"?max=1&prefix="+prefix, nil)
		if got.status != 200 || !strings.Contains(got.body, "run-4") || !strings.Contains(got.body, `"more":false`) {
			t.Errorf("listing %s: %d %s", prefix, got.status, got.body)
		}
	}
}
