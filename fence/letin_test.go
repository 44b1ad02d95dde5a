package fence_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tonbo-go/tonbo/fence"
)

// TestOwnerOfAnyRhythmLetsATakeoverIn: whatever an owner pauses between its appends, and whenever it begins, a claim gets in within a bounded time, and of its
// appends hardly one in two hundred is held up for it. Time is the bubble's.
func TestOwnerOfAnyRhythmLetsATakeoverIn(t *testing.T) {
	const way = 20 * time.Millisecond // of a request
	for pause := time.Duration(0); pause <= 7*way; pause += way / 2 {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			l := fence.New(s, "db1", fence.Options{})
			o, err := l.Create(t.Context(), fence.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s.on = func(context.Context, string) fault {
				time.Sleep(way)
				return ok
			}
			const alone = 1000
			held := 0
			fenced := make(chan error)
			claim := make(chan struct{})
			go func() {
				for i := 0; ; i++ {
					if i == alone {
						close(claim)
					}
					began := time.Now()
					if _, err := o.Append(t.Context(), commit()); err != nil {
						fenced <- err
						return
					}
					if i < alone && time.Since(began) > way {
						held++
					}
					time.Sleep(pause)
				}
			}()
			<-claim
			began := time.Now()
			claimed(t, l)
			took := time.Since(began)
			wantErr(t, <-fenced, fence.ErrFenced)
			t.Logf("pauses of %v: through after %v; held up %d of %d", pause, took, held, alone)
			if held > alone/200 {
				t.Errorf("pauses of %v: %d of %d appends held up", pause, held, alone)
			}
			if took > time.Minute {
				t.Errorf("pauses of %v: through after %v", pause, took)
			}
		})
	}
}
