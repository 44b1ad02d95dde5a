package tonbotest

import (
	"sync"
	"time"
)

// Clock is a clock that stands still until the test moves it. The zero value shows the zero time; see [NewClock].
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	alarms []alarm
}

type alarm struct {
	at time.Time
	c  chan time.Time // capacity 1
}

// NewClock returns a clock that shows start.
func NewClock(start time.Time) *Clock { return &Clock{now: start} }

// Now returns what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After returns a channel that gets the time once the clock has moved on by d; at once when d is not positive.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := alarm{c.now.Add(d), make(chan time.Time, 1)}
	c.alarms = append(c.alarms, a)
	c.ring()
	return a.c
}

// Advance moves the clock. A negative d sets it back: alarms that have rung do not ring again.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.ring()
}

func (c *Clock) ring() {
	var left []alarm
	for _, a := range c.alarms {
		if a.at.After(c.now) {
			left = append(left, a)
		} else {
			a.c <- c.now
		}
	}
	c.alarms = left
}
