package tonbo_test

import (
	"crypto/rand"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// TestEntryThatUnpacksToAnythingIsNotPutWholly: a stranger's entry of a few kilobytes holds pages for hundreds of megabytes. Who opens the database takes a bounded part of them at once, and fetches what is asked for.
func TestEntryThatUnpacksToAnythingIsNotPutWholly(t *testing.T) {
	store, ctx := mem.New(t.Name()), t.Context()
	o := tonbo.Options{Remote: store, Dir: t.TempDir(), Hydration: tonbo.HydrateNone}
	c, err := tonbo.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(ctx, "run", tonbo.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list, _, err := store.List(ctx, fence.LogPrefix("run"), remote.ListOptions{Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	head, err := store.Get(ctx, list[0].Key, remote.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h, _, err := segment.DecodeHeader(head.Body)
	if err != nil {
		t.Fatal(err)
	}
	const limit = 128 << 20 // bytes, of handLimit
	size := int(h.PageSize)
	w, page := segment.NewWriter(size), make([]byte, size)
	for p := uint32(2); int64(p)*int64(size) < limit+32<<20; p++ {
		if err := w.Add(p, page); err != nil {
			t.Fatal(err)
		}
	}
	payload, sum, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	h.Prev = h.Sum()
	h.Slot++
	h.Kind, h.Flags, h.PayloadSize, h.PayloadSum, h.PageCount = segment.KindCommit, h.Flags&^segment.FlagWhole, int64(len(payload)), sum, 1<<20
	h.Tail = []uint64{h.Slot - 1}
	rand.Read(h.Nonce[:])
	body, err := segment.EncodeHeader(nil, h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(ctx, fence.SlotKey("run", h.Slot), append(body, payload...)); err != nil {
		t.Fatal(err)
	}
	db, err := tonbo.OpenReadOnly(ctx, "run", o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if n := db.Status().PagesLocal * int64(size); n > limit+int64(size) { // and the lock page
		t.Errorf("an entry of %d bytes put %d bytes of pages", len(payload), n)
	}
	var n int
	if err := db.QueryRow("SELECT count(*) FROM sqlite_schema").Scan(&n); err != nil {
		t.Error(err)
	}
}
