package tonbo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// Prices are those of a service that bills writes, and of a bucket that bills requests, in one currency. What is 0 costs nothing. Their JSON has the names of the tags.
type Prices struct {
	Currency string  `json:"currency"`          // for messages
	Unit     float64 `json:"write_unit"`        // service: one write unit of 10 KiB, see Usage.WriteUnits
	Service  float64 `json:"service_gib_month"` // service: a GiB stored for 30 days
	Put      float64 `json:"put"`               // bucket: one request
	Get      float64 `json:"get"`               // GET and HEAD
	List     float64 `json:"list"`
	Delete   float64 `json:"delete"`
	Bucket   float64 `json:"bucket_gib_month"` // bucket: a GiB stored for 30 days
	Fetched  float64 `json:"fetched_gib"`      // bucket: a GiB sent out of it
}

// ReadPrices reads a price file: one JSON object with the fields of [Prices]. Unknown fields and prices below 0 are errors.
func ReadPrices(r io.Reader) (Prices, error) {
	var p Prices
	if err := notNil("r", r == nil); err != nil {
		return p, fmt.Errorf("price file: %w", err)
	}
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&p); errors.Is(err, io.EOF) {
		return p, fmt.Errorf("price file: it is empty: want a JSON object")
	} else if err != nil {
		return p, fmt.Errorf("price file: %w", err)
	}
	if d.More() {
		return p, fmt.Errorf("price file: more than one JSON object")
	}
	if zero := (Prices{Currency: p.Currency}); p == zero {
		return p, fmt.Errorf("price file: it has no price: want one of write_unit, service_gib_month, put, get, list, delete, bucket_gib_month, fetched_gib")
	}
	for name, v := range map[string]float64{"write_unit": p.Unit, "service_gib_month": p.Service, "put": p.Put, "get": p.Get, "list": p.List, "delete": p.Delete, "bucket_gib_month": p.Bucket, "fetched_gib": p.Fetched} {
		if v < 0 || math.IsInf(v, 0) {
			return p, fmt.Errorf("price file: %s is %v", name, v)
		}
	}
	return p, nil
}

// Cost is an amount of money by two models, in the currency of the prices.
type Cost struct {
	Service Bill // of a service that bills write units
	Bucket  Bill // of a bucket that bills requests
}

// Bill is one model's.
type Bill struct {
	Requests float64 // write units, or requests
	Transfer float64 // bytes fetched; a bucket's
	Storage  float64
}

// Total is the sum.
func (b Bill) Total() float64 { return b.Requests + b.Transfer + b.Storage }

const (
	gib   = 1 << 30
	month = 30 // days
)

// Cost is what this usage costs.
func (u *Usage) Cost(p Prices) Cost {
	r := u.Requests
	months := u.StorageByteDays / gib / month
	return Cost{
		Service: Bill{Requests: float64(u.WriteUnits) * p.Unit, Storage: months * p.Service},
		Bucket: Bill{
			Requests: float64(r.Put)*p.Put + float64(r.Get+r.Head)*p.Get + float64(r.List)*p.List + float64(r.Delete)*p.Delete,
			Transfer: float64(u.BytesFetched) / gib * p.Fetched,
			Storage:  months * p.Bucket,
		},
	}
}

// CostOfRuns is what 30 days cost in which perDay databases like those of this usage are made each day, and each is kept for kept, at the size that they have now. Zero for a usage without databases.
func (u *Usage) CostOfRuns(p Prices, perDay float64, kept time.Duration) Cost {
	if u.Creates == 0 {
		return Cost{}
	}
	runs := max(0, perDay) * month
	one := *u
	one.StorageByteDays = 0
	c := one.Cost(p)
	scale := runs / float64(u.Creates)
	storage := float64(u.StoredBytes) / float64(u.Creates) / gib * runs * kept.Hours() / 24 / month
	for _, b := range []*Bill{&c.Service, &c.Bucket} {
		b.Requests *= scale
		b.Transfer *= scale
	}
	c.Service.Storage, c.Bucket.Storage = storage*p.Service, storage*p.Bucket
	return c
}
