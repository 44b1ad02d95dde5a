package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/server/internal/access"
)

// health: the process answers.
func (s *Server) health(c *call) error {
	return c.data(http.StatusOK, map[string]string{"status": "ok"})
}

// ready: the store answers, too.
func (s *Server) ready(c *call) error {
	p := s.probe()
	select {
	case <-p.done:
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	if p.err != nil {
		return unavailable("not_ready", "the store does not answer", 5*time.Second)
	}
	return c.data(http.StatusOK, map[string]string{"status": "ready"})
}

const (
	readyTimeout = 5 * time.Second
	readyFor     = time.Second
)

// readiness is the newest probe of the store.
type readiness struct {
	mu    sync.Mutex
	probe *probe
}

// probe is one question to the store, which any number of requests wait for, each as long as it likes.
type probe struct {
	done chan struct{} // closed when the others are set
	at   time.Time
	err  error
}

// probe returns the one that is under way or younger than readyFor, else a new one: anybody may ask for that, and the store is asked at most once a second. The caller is a request, so Close has yet to wait for it.
func (s *Server) probe() *probe {
	s.readiness.mu.Lock()
	defer s.readiness.mu.Unlock()
	if p := s.readiness.probe; p != nil {
		select {
		case <-p.done:
			if time.Since(p.at) < readyFor {
				return p
			}
		default:
			return p
		}
	}
	p := &probe{done: make(chan struct{})}
	s.readiness.probe = p
	s.busy.Go(func() {
		defer close(p.done)
		ctx, cancel := context.WithTimeout(s.ctx, readyTimeout)
		defer cancel()
		_, _, p.err = s.store.List(ctx, access.Prefix, remote.ListOptions{Max: 1})
		if p.at = time.Now(); p.err != nil {
			s.log.Warn("not ready", "error", p.err)
		}
	})
	return p
}
