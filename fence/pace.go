package fence

import "time"

// pace lets takeovers in. A claim looks at the head (LIST, GET) and then puts behind it (PUT): it needs two round trips in which no append is applied, and, failing, it begins the next try
// about four after the one before. An owner that appends back to back would win that race every time, so now and then it waits for so long. Where its own pauses let claims
// in, it waits more seldom. This is about getting through, never about who owns the database: a clock that is off makes for more such waits, or none.
type pace struct {
	took   time.Duration // how long an append takes, smoothed
	end    time.Time     // of the append before
	since  time.Time     // there has been no long enough gap since, nor enough of a chance
	busy   time.Duration // of appends since then
	chance float64       // how many claims would have got in since then, by the length of the pauses
	spared int           // how many gaps in a row have not been made because of that
}

const (
	gapAppends  = 6           // a gap is as long as so many appends ...
	gapMax      = time.Second // ... at most this ...
	gapEvery    = time.Second // ... and is made no more often than this ...
	gapShare    = 40          // ... and takes at most one part in so many of the time of appends: less than one in two hundred of these waits for it
	gapChances  = 2           // so many claims would have got in: no gap is needed ...
	sparedInRow = 9           // ... but for one in ten, lest the pauses and a claim's tries keep step
)

// due tells how long the append that would begin now has to wait.
func (p *pace) due(now time.Time) time.Duration {
	gap := min(gapAppends*p.took, gapMax)
	idle := now.Sub(p.end)
	if idle >= gap || now.Before(p.since) {
		p.begin(now)
		p.spared = 0
		return 0
	}
	// Appends are applied idle+took apart. A claim gets in if its LIST is applied in the first idle-took of that, and it makes one in four times took.
	if idle > p.took {
		p.chance += float64(idle-p.took) / float64(4*p.took)
	}
	if now.Sub(p.since) < gapEvery || p.busy < gapShare*gap {
		return 0
	}
	if p.chance >= gapChances && p.spared < sparedInRow {
		p.begin(now)
		p.spared++
		return 0
	}
	p.begin(now.Add(gap))
	p.spared = 0
	return gap
}

func (p *pace) begin(at time.Time) { p.since, p.busy, p.chance = at, 0, 0 }

// done is told of each append.
func (p *pace) done(begin, end time.Time) {
	took := max(0, end.Sub(begin))
	if p.end.IsZero() {
		p.took = took
	}
	p.took += (took - p.took) / 4
	p.busy += took
	p.end = end
}
