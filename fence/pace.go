package fence

import "time"

// pace lets takeovers in. A claim looks at the head (LIST, GET) and then puts behind it (PUT): it needs about two round trips in which the owner does not
// append, and it looks once in four. An owner that appends back to back would win that race every time, so now and then it waits for so long. This is
// about getting through, never about who owns the database: a clock that is off makes for more such waits, or none.
type pace struct {
	took  time.Duration // how long an append takes, smoothed
	end   time.Time     // of the append before
	since time.Time     // there has been no long enough gap since
}

const (
	gapAppends = 6           // a gap is as long as so many appends ...
	gapMax     = time.Second // ... at most this ...
	gapEvery   = time.Second // ... and is made no more often than this ...
	gapShare   = 20          // ... and takes at most one part in so many of the time
)

// due tells how long the append that would begin now has to wait.
func (p *pace) due(now time.Time) time.Duration {
	gap := min(gapAppends*p.took, gapMax)
	if idle := now.Sub(p.end); idle >= gap || now.Before(p.since) {
		p.since = now
		return 0
	}
	if now.Sub(p.since) < max(gapEvery, gapShare*gap) {
		return 0
	}
	p.since = now.Add(gap)
	return gap
}

// done is told of each append.
func (p *pace) done(begin, end time.Time) {
	took := max(0, end.Sub(begin))
	if p.end.IsZero() {
		p.took = took
	}
	p.took += (took - p.took) / 4
	p.end = end
}
