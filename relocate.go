package tonbo

import "context"

// holdsRound marks the context of who holds the handle's round.
type holdsRound struct{}

func withRound(ctx context.Context) context.Context {
	return context.WithValue(ctx, holdsRound{}, true)
}

// relocate looks for pages in the newest base of our own, when an object of the state that the file began with has been collected. It tells whether another try is
// worth it. A fenced owner has no newer base.
func (s *lazy) relocate(ctx context.Context, old *locator) (again bool, err error) {
	h := s.h
	if ctx.Value(holdsRound{}) == nil {
		if h.lockRound(ctx) != nil {
			return false, nil
		}
		defer h.unlockRound()
	}
	if s.loc.Load() != old {
		return true, nil
	}
	owner, _ := h.current()
	if h.ended() != nil || owner == nil || owner.Err() != nil {
		return false, nil
	}
	if _, err := h.settle(ctx); err != nil {
		return false, nil
	}
	m := h.compactor.base
	if m == nil || old.base != nil && m.ID == old.base.ID && m.Slot <= old.base.Slot { // a fork's source counts its own slots
		return false, nil
	}
	slot, count, _ := h.dir.Position()
	l := h.newLocator(h.tail.clone(), m, slot, s.size, count)
	l.newest = true
	s.loc.Store(l)
	h.o.Logger.Debug("objects were collected; absent pages come from the newest base", "database", h.name, "slot", m.Slot)
	return true, nil
}
