package tonbo_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

func TestProvideMakesADatabaseAndTakesNothingOver(t *testing.T) {
	c, err := tonbo.NewClient(tonbo.Options{Remote: mem.New(t.Name()), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, is := t.Context(), c.Instances()
	in, err := is.Provide(ctx, "customer:1", tonbo.EnsureOptions{})
	if err != nil || in.Started != tonbo.Created || in.Generation != 1 || in.DB != nil {
		t.Fatal(in, err)
	}
	first := in.DatabaseID
	if in, err = is.Provide(ctx, "customer:1", tonbo.EnsureOptions{}); err != nil || in.Started != tonbo.Resumed || in.DatabaseID != first {
		t.Fatal(in, err)
	}
	// An owner is not disturbed.
	db, err := c.Open(ctx, in.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if in, err = is.Provide(ctx, "customer:1", tonbo.EnsureOptions{ExpectID: first}); err != nil || in.Started != tonbo.Running {
		t.Fatal(in, err)
	}
	if err := db.Synced(ctx); err != nil {
		t.Error("the owner after a Provide:", err)
	}
	// Its end is followed by the next generation, and not by one that was not expected.
	if err := c.Delete(ctx, in.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := is.Provide(ctx, "customer:1", tonbo.EnsureOptions{ExpectID: first}); !errors.Is(err, tonbo.ErrTargetChanged) {
		t.Error(err)
	}
	in, err = is.Provide(ctx, "customer:1", tonbo.EnsureOptions{})
	if err != nil || in.Generation != 2 || in.Started != tonbo.Created || in.DatabaseID == first {
		t.Fatal(in, err)
	}
	if err := c.Freeze(ctx, in.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := is.Provide(ctx, "customer:1", tonbo.EnsureOptions{}); !errors.Is(err, tonbo.ErrFrozen) {
		t.Error(err)
	}
	if _, err := is.Provide(ctx, "customer:1", tonbo.EnsureOptions{Version: "2"}); !errors.Is(err, tonbo.ErrInvalid) {
		t.Error(err)
	}
}

// TestKeyWhoseLogIsDamagedGetsNoOtherDatabase: whether the database has ended that such a log names, nobody can tell.
func TestKeyWhoseLogIsDamagedGetsNoOtherDatabase(t *testing.T) {
	ctx := t.Context()
	a := newAccount(t)
	c := a.client()
	in := ensure(t, c, "k", tonbo.EnsureOptions{})
	closeDB(t, in.DB)
	page, _, err := a.store.List(ctx, "instances/k/", remote.ListOptions{Max: 1})
	if err != nil || len(page) != 1 {
		t.Fatal(page, err)
	}
	o, err := a.store.Get(ctx, page[0].Key, remote.GetOptions{})
	if err == nil {
		err = a.store.Delete(ctx, page[0].Key)
	}
	if err == nil {
		_, err = a.store.Create(ctx, page[0].Key, bytes.Replace(o.Body, []byte(in.DatabaseID), []byte("x"), 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
	wantIs(t, "Ensure", err, tonbo.ErrCorrupt)
	_, err = c.Instances().Provide(ctx, "k", tonbo.EnsureOptions{})
	wantIs(t, "Provide", err, tonbo.ErrCorrupt)
	if n := must[int](t)(c.Count(ctx, tonbo.Filter{})); n != 1 {
		t.Errorf("%d databases", n)
	}
}
