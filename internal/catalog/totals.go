package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// TotalsPrefix is what the keys of the totals of ended incarnations begin with.
const TotalsPrefix = "usage/"

// totalsKey carries the totals themselves, so that adding them up over an account takes a LIST for each 1,000 of them and no GET.
func totalsKey(e *fence.Entry) string {
	b := fmt.Appendf(nil, "%s%s/%v", TotalsPrefix, e.Time.UTC().Format("2006-01"), e.ID)
	for _, c := range counters(&e.Usage) {
		b = fmt.Appendf(b, ".%x", *c)
	}
	return string(fmt.Appendf(b, ".%016x", math.Float64bits(e.Usage.ByteSeconds)))
}

// counters are the totals that a key carries, in its order, but ByteSeconds, which is last.
func counters(u *segment.Usage) [10]*uint64 {
	return [...]*uint64{&u.Opens, &u.Commits, &u.Units, &u.Put, &u.Get, &u.Head, &u.List, &u.Delete, &u.Up, &u.Down}
}

// totals is the body of such an object, for whoever looks at one.
type totals struct {
	Format int           `json:"format"`
	Name   string        `json:"name"`
	Begin  uint64        `json:"begin"`
	End    uint64        `json:"end"` // slot of its delete
	At     time.Time     `json:"at"`
	Usage  segment.Usage `json:"usage"`
}

// PutTotals keeps what the incarnation of name that e, a delete, has ended had used: the entry says it, so whoever does it again comes to the same key.
func PutTotals(ctx context.Context, s remote.Store, name string, e *fence.Entry) error {
	body, err := json.Marshal(totals{format, name, e.Usage.Begin, e.Slot, e.Time.UTC(), e.Usage})
	if err != nil {
		return err
	}
	return createOnce(ctx, s, totalsKey(e), body, nil)
}

// Totals calls fn with what each incarnation that has ended had used. Keys that are none of PutTotals' are passed over.
func Totals(ctx context.Context, s remote.Store, fn func(segment.Usage)) error {
	return list(ctx, s, TotalsPrefix, "", func(i remote.Info) bool {
		if u, ok := parseTotals(i.Key); ok {
			fn(u)
		}
		return true
	})
}

func parseTotals(key string) (u segment.Usage, ok bool) {
	_, rest, _ := strings.Cut(strings.TrimPrefix(key, TotalsPrefix), "/")
	parts := strings.Split(rest, ".")
	of := counters(&u)
	if len(parts) != len(of)+2 {
		return u, false
	}
	for n, c := range of {
		v, err := strconv.ParseUint(parts[n+1], 16, 64)
		if err != nil {
			return u, false
		}
		*c = v
	}
	bits, err := strconv.ParseUint(parts[len(parts)-1], 16, 64)
	u.ByteSeconds = math.Float64frombits(bits)
	return u, err == nil && u.ByteSeconds >= 0 && !math.IsInf(u.ByteSeconds, 0)
}
