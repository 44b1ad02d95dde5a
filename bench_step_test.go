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

// BenchmarkRemoteStep takes steps by DB.Step, and the same transactions followed by Synced, in turns.
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
	var steps, plain []time.Duration
	b.ResetTimer()
	for i := range b.N {
		start := time.Now()
		if s, err := db.Step(ctx, "bench", fmt.Sprint(i), insert); err != nil || s.Replayed {
			b.Fatal(s, err)
		}
		middle := time.Now()
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
		steps, plain = append(steps, middle.Sub(start)), append(plain, time.Since(middle))
	}
	b.StopTimer()
	b.ReportMetric(percentile(steps, .5), "p50-step-us")
	b.ReportMetric(percentile(plain, .5), "p50-plain-us")
	b.ReportMetric(percentile(steps, .5)/percentile(plain, .5), "ratio-p50")
	b.ReportMetric(0, "ns/op")
}
