package tonbo_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
)

func TestCostByBothModels(t *testing.T) {
	p, err := tonbo.ReadPrices(strings.NewReader(`{"currency": "USD", "write_unit": 0.00001, "service_gib_month": 0.5,
		"put": 0.000005, "get": 0.0000004, "list": 0.000005, "delete": 0, "bucket_gib_month": 0.023, "fetched_gib": 0.09}`))
	if err != nil {
		t.Fatal(err)
	}
	u := &tonbo.Usage{
		Creates: 2, WriteUnits: 1000, Requests: tonbo.Requests{Put: 800, Get: 500, Head: 100, List: 20, Delete: 7},
		BytesFetched: 3 << 30, StoredBytes: 4 << 30, StorageByteDays: 60 * (1 << 30),
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	c := u.Cost(p)
	near("service writes", c.Service.Requests, 0.01)
	near("service storage", c.Service.Storage, 2*0.5)
	near("bucket requests", c.Bucket.Requests, 800*0.000005+600*0.0000004+20*0.000005)
	near("bucket transfer", c.Bucket.Transfer, 0.27)
	near("bucket storage", c.Bucket.Storage, 2*0.023)
	near("bucket", c.Bucket.Total(), c.Bucket.Requests+c.Bucket.Transfer+c.Bucket.Storage)

	// A thousand runs a day, each kept for a week: 30,000 runs, 7,000 databases of 2 GiB at any time.
	r := u.CostOfRuns(p, 1000, 7*24*time.Hour)
	near("runs: service writes", r.Service.Requests, 0.01/2*30_000)
	near("runs: service storage", r.Service.Storage, 7000*2*0.5)
	near("runs: bucket storage", r.Bucket.Storage, 7000*2*0.023)
	near("runs: bucket transfer", r.Bucket.Transfer, 0.27/2*30_000)
	if z := new(tonbo.Usage).CostOfRuns(p, 1000, time.Hour); z != (tonbo.Cost{}) {
		t.Errorf("no runs cost %+v", z)
	}
}

func TestBadPriceFilesAreRefused(t *testing.T) {
	for _, bad := range []string{`{"puts": 1}`, `{"put": -1}`, `{"put": "x"}`, ``, `{} {}`, `[]`} {
		if _, err := tonbo.ReadPrices(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), "price file") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
