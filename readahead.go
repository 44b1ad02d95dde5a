package tonbo

import (
	"sync"
	"time"
)

// readAheads notices scans: a page right behind what was fetched last is one. Each time it goes on, twice as much is fetched.
type readAheads struct {
	mu      sync.Mutex
	streams [8]struct {
		next   uint32
		window int // blocks
		used   time.Time
	}
}

const (
	maxWindow = 64 // blocks
	nearby    = 16 // pages that a scan may leave out
)

// begin returns how many blocks to fetch for page p.
func (r *readAheads) begin(p uint32) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.streams {
		if s := &r.streams[i]; s.next != 0 && p >= s.next && p < s.next+nearby {
			s.next = 0
			return min(2*s.window, maxWindow)
		}
	}
	return 1
}

// end takes note of what was fetched.
func (r *readAheads) end(next uint32, window int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := &r.streams[0]
	for i := range r.streams {
		if s := &r.streams[i]; s.next == 0 || oldest.next != 0 && s.used.Before(oldest.used) {
			oldest = s
		}
	}
	oldest.next, oldest.window, oldest.used = next, window, time.Now()
}
