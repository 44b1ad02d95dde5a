package server_test

import (
	"crypto/rand"
	"runtime"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	format "github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// TestForgedSizeCostsTheServerNoMemory: a narrowed key writes that its database has as many pages as the server lets it say, in an entry of 300 bytes, and has the server read it.
func TestForgedSizeCostsTheServerNoMemory(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	c, err := tonbo.NewClient(tonbo.Options{Remote: w.store, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(ctx, "run-1", tonbo.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	db, err := c.Open(ctx, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE t(v); INSERT INTO t VALUES(7)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	page, _, err := w.store.List(ctx, fence.LogPrefix("run-1"), remote.ListOptions{Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	o, err := w.store.Get(ctx, page[0].Key, remote.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h, _, err := format.DecodeHeader(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	h.Prev = h.Sum()
	h.Slot++
	h.Kind, h.PayloadSize, h.PayloadSum = format.KindCommit, 0, 0
	rand.Read(h.Nonce[:])
	thief := w.key(`{"name":"sandbox","databases":["run-1"]}`)
	for _, c := range []struct {
		pages  uint32
		status int
	}{{format.MaxPage, 403}, {1<<27 + 1, 403}, {1 << 27, 201}} {
		h.PageCount = c.pages
		body, err := format.EncodeHeader(nil, h)
		if err != nil {
			t.Fatal(err)
		}
		w.want(c.status, "PUT", "/v1/databases/run-1/objects/"+fence.SlotKey("run-1", h.Slot), thief, string(body), "If-None-Match", "*")
	}

	for _, ask := range [][3]string{
		{"POST", "/query", `{"sql":"SELECT count(*) FROM sqlite_schema"}`},
		{"GET", "", ""},
		{"GET", "/usage", ""},
		{"GET", "/history", ""},
		{"GET", "/export", ""},
		{"POST", "/checkpoints", `{"label":"x","take_over":true}`},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := w.do(ask[0], "/v1/databases/run-1"+ask[1], thief, ask[2])
		runtime.ReadMemStats(&after)
		n := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%s%s: %d MiB: %d", ask[0], ask[1], n, a.Status)
		if n > 128 {
			t.Errorf("%s %s took %d MiB: %d %.300s", ask[0], ask[1], n, a.Status, a.Body)
		}
	}
}
