package tonbo_test

import (
	"errors"
	"testing"

	"github.com/tonbo-go/tonbo"
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
