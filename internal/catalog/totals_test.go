package catalog_test

import (
	"context"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote/mem"
)

func TestTotalsOfEndedDatabasesAddUpByListingAlone(t *testing.T) {
	ctx := context.Background()
	s := mem.New("totals")
	big := segment.Usage{Begin: 3, Opens: 2, Commits: 1 << 40, Units: 1 << 63, Put: 4, Get: 5, Head: 6, List: 7, Delete: 8, Up: 1<<64 - 1, Down: 10, Stored: 11, ByteSeconds: 1.25e300}
	for n, u := range []segment.Usage{big, {}} {
		e := &fence.Entry{Kind: fence.Delete, ID: fence.ID{byte(n)}, Slot: 9, Time: time.Date(2026, 11, 30, 1, 2, 3, 4, time.UTC), Usage: u}
		for range 2 { // again is the same
			if err := catalog.PutTotals(ctx, s, "run-1", e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := s.Create(ctx, "usage/2026-11/other", nil); err != nil { // not ours
		t.Fatal(err)
	}
	var got []segment.Usage
	if err := catalog.Totals(ctx, s, func(u segment.Usage) { got = append(got, u) }); err != nil {
		t.Fatal(err)
	}
	big.Begin, big.Stored = 0, 0 // nothing is stored of it any more
	if len(got) != 2 || got[0] != big || got[1] != (segment.Usage{}) {
		t.Errorf("got %+v", got)
	}
}
