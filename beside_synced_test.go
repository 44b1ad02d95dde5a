package tonbo_test

import (
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote/mem"
)

// TestSyncedWaitsForAtMostOneAppendOfACompaction: over a line of 20 ms, whatever goes on in the background, a Synced takes the time of one PUT, and of two at most where the
// entry of a base is on its way. Fewer than one in two hundred stand in the gap that an owner without pauses leaves for takeovers (fence/pace.go). Time is the bubble's, so these are exact.
func TestSyncedWaitsForAtMostOneAppendOfACompaction(t *testing.T) {
	const (
		way    = 20 * time.Millisecond // of a request
		schema = `CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB);
			WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<2000) INSERT INTO t(v) SELECT randomblob(900) FROM s`
	)
	steps := 400
	if raceEnabled { // SQLite takes ten times as long
		steps = 250
	}
	bases := steps / 192 // one each so many entries
	inBubble(t, func(t *testing.T) {
		for _, c := range []struct {
			name  string
			pause time.Duration // between one Synced and the next
			step  string
			gaps  int
		}{
			{"appending, back to back", 0, "INSERT INTO t(v) VALUES(randomblob(800))", steps / 200},
			{"appending, with pauses", 2 * way, "INSERT INTO t(v) VALUES(randomblob(800))", 0},
			{"all over, back to back", 0, "UPDATE t SET v=randomblob(500) WHERE id=1+abs(random())%2000", steps / 200},
		} {
			a := &account{t: t, store: &chained{Store: mem.New("far"), delay: way}}
			a.create("run")
			db := open(t, "run", a.machine())
			exec(t, db, schema)
			synced(t, db)
			hydrated(t, db)
			before := db.Status().Requests.Put
			second, gaps := 0, 0
			for i := range steps {
				exec(t, db, c.step)
				began := time.Now()
				synced(t, db)
				switch took := time.Since(began); {
				case took <= way:
				case took <= 2*way:
					second++
				default:
					t.Logf("%s: step %d took %v", c.name, i, took)
					gaps++
				}
				time.Sleep(c.pause)
			}
			if puts := db.Status().Requests.Put - before; db.Base() == nil || int(puts) < steps+3*bases {
				t.Errorf("%s: %d PUTs: want %d bases among %d steps", c.name, puts, bases, steps)
			}
			if second > bases || gaps > c.gaps {
				t.Errorf("%s: of %d steps, %d took up to two PUTs and %d longer; want at most %d and %d", c.name, steps, second, gaps, bases, c.gaps)
			}
			closeDB(t, db)
			if raceEnabled {
				break
			}
		}
	})
}
