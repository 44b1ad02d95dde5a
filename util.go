package tonbo

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/internal/disk"
)

func now() int64 { return time.Now().UnixNano() }

func randomNonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

// progressMeter adds up what is done and tells Options.Progress.
type progressMeter struct {
	mu sync.Mutex
	fn func(Progress)
	p  Progress
}

func (h *handle) progress(doing string, total int64) *progressMeter {
	return &progressMeter{fn: h.o.Progress, p: Progress{Name: h.name, Doing: doing, Total: total}}
}

func (m *progressMeter) add(n int64) {
	if m.fn == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.Done += n
	m.fn(m.p)
}

// noRoom tells whoever finds the local disk full where to make room.
func (h *handle) noRoom(err error) error {
	if disk.Full(err) {
		return fmt.Errorf("%w; make room in %s", err, h.o.Dir)
	}
	return err
}
