package tonbo_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/internal/s3test"
)

// BenchmarkRemoteStep takes steps by DB.Step, and the same transactions followed by Synced, in pairs. Which of a pair goes first is drawn: four rows fill a page, so with turns that are always the same it is always the one of the two
// that begins a page, and ships more of them.
func BenchmarkRemoteStep(b *testing.B) {
	store := s3test.Store(b)
	a := &account{t: b, store: store}
	a.create("bench")
	db := open(b, "bench", a.machine())
	seed(b, db.DB)
	synced(b, db)
	ctx := context.Background()
	row := make([]byte, 1000)
	insert := func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		for i := range row {
			row[i] = byte(rand.Uint32())
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO t(k,v) VALUES('step',?)", row)
		return []byte(`{"state":"completed"}`), err
	}
	step := func(i int) {
		if s, err := db.Step(ctx, "bench", fmt.Sprint(i), insert); err != nil || s.Replayed {
			b.Fatal(s, err)
		}
	}
	same := func(int) {
		tx, err := db.BeginTx(ctx, nil)
		if err == nil {
			if _, err = insert(ctx, tx); err == nil {
				err = tx.Commit()
			}
		}
		if err == nil {
			err = db.Synced(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	timed := func(f func(int), i int, times *[]time.Duration) {
		start := time.Now()
		f(i)
		*times = append(*times, time.Since(start))
	}
	var steps, plain []time.Duration
	b.ResetTimer()
	for i := range b.N {
		if rand.IntN(2) == 0 {
			timed(step, i, &steps)
			timed(same, i, &plain)
		} else {
			timed(same, i, &plain)
			timed(step, i, &steps)
		}
	}
	b.StopTimer()
	b.ReportMetric(percentile(steps, .5), "p50-step-us")
	b.ReportMetric(percentile(plain, .5), "p50-plain-us")
	b.ReportMetric(percentile(steps, .5)/percentile(plain, .5), "ratio-p50")
	b.ReportMetric(0, "ns/op")
}
