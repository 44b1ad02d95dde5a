package server

import (
	"time"

	"github.com/tonbo-go/tonbo/server/internal/access"
)

func (s *Server) SetQueryTime(d time.Duration) { s.queryTime = d }

// Routes are "METHOD path operationId" of all routes.
func (s *Server) Routes() (all []string) {
	for _, r := range s.all {
		all = append(all, r.method+" "+r.path+" "+r.id)
	}
	return all
}

// SetClock makes keys expire by another clock.
func (s *Server) SetClock(now func() time.Time) {
	s.keys = access.NewKeys(s.store, access.Options{Cache: max(0, s.o.KeyCache), Now: now})
}

// Codes are those that errors are mapped to.
func Codes() (all []string) {
	for _, s := range statuses {
		all = append(all, s.code)
	}
	return all
}
