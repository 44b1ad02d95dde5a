package fence

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	const ms = time.Millisecond
	var p pace
	now := time.Unix(1000, 0)
	waited, appends := time.Duration(0), 0
	run := func(d, took, think time.Duration) {
		waited, appends = 0, 0
		for end := now.Add(d); now.Before(end); appends++ {
			gap := p.due(now)
			waited += gap
			now = now.Add(gap)
			begin := now
			now = now.Add(took)
			p.done(begin, now)
			now = now.Add(think)
		}
	}
	run(10*time.Second, 20*ms, 0)
	if waited < 200*ms || waited > 300*ms { // 120 ms each time, at most a fortieth of the time
		t.Errorf("back to back: waited %v of 10s", waited)
	}
	run(40*time.Second, 20*ms, 45*ms) // with pauses in which claims get in one time in three
	if waited != 0 {
		t.Errorf("with pauses of its own: waited %v of 40s", waited)
	}
	run(400*time.Second, 20*ms, 45*ms) // lest a claim's tries keep step with them
	if waited < 120*ms || waited > 3*120*ms {
		t.Errorf("with pauses of its own: waited %v of 400s", waited)
	}
	run(10*time.Second, 20*ms, 500*ms)
	if waited != 0 {
		t.Errorf("with long pauses: waited %v", waited)
	}
	run(100*time.Second, 5*time.Second, 0)
	if waited > 5*gapMax {
		t.Errorf("slow store: waited %v of 100s", waited)
	}
	now = now.Add(-1000 * time.Hour) // the clock is set back
	run(10*time.Second, 20*ms, 0)
	if waited == 0 || waited > 2*time.Second {
		t.Errorf("behind a clock set back: waited %v of 10s", waited)
	}
}
