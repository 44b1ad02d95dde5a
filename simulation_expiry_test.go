package tonbo_test

import (
	"errors"
	"slices"
	"time"

	"github.com/tonbo-go/tonbo"
)

// simExpiry is what is known of a database's expiry. An Update whose outcome is not known leaves several that it may be.
type simExpiry struct {
	may     []time.Time // the zero time: never
	changes int         // Updates so far
}

// past tells whether it has expired at t, whichever it is.
func (x *simExpiry) past(t time.Time) bool {
	return len(x.may) > 0 && !slices.ContainsFunc(x.may, func(at time.Time) bool { return at.IsZero() || t.Before(at) })
}

// mayBePast tells whether it may have expired at t.
func (x *simExpiry) mayBePast(t time.Time) bool {
	return slices.ContainsFunc(x.may, func(at time.Time) bool { return !at.IsZero() && !t.Before(at) })
}

// expiry draws one.
func (w *simWorld) expiry() time.Time {
	d := []time.Duration{0, 10 * time.Minute, time.Hour, 5 * time.Hour}[w.rng.IntN(4)]
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d).Truncate(time.Second)
}

// expire gives a database another expiry.
func (w *simWorld) expire(m *simMachine, name string) error {
	w.weather(m, false)
	x, at := &w.names[name].expiry, w.expiry()
	c, err := w.client(m)
	if err != nil {
		return err
	}
	began := time.Now()
	_, err = c.Update(w.op, name, tonbo.UpdateOptions{ExpiresAt: &at})
	w.log("m%d lets %s expire at %s: %s", m.n, name, at.Format(time.TimeOnly), outcome(err))
	switch {
	case err == nil:
		if x.past(began) {
			w.n.revived++
		}
		x.may = []time.Time{at}
	case errors.Is(err, tonbo.ErrExpired) || errors.Is(err, tonbo.ErrDeleted):
		return w.rightlyExpired(name, "an Update", err)
	default:
		x.may = append(x.may, at)
	}
	x.changes++
	return nil
}

// rightlyExpired holds against what is known that a database was said to have expired.
func (w *simWorld) rightlyExpired(name, how string, err error) error {
	if n := w.names[name]; errors.Is(err, tonbo.ErrExpired) && !n.expiry.mayBePast(time.Now()) {
		return broke("%s of %s, whose expiry is %v: %v", how, name, n.expiry.may, err)
	}
	return nil
}

// inTime: h was told at the end of this step that the remote holds its list. An owner that knew of the expiry when it began may not be.
func (w *simWorld) inTime(name string, h *simHandle) error {
	x := &w.names[name].expiry
	if h.knows == x.changes && x.past(w.began) {
		return broke("%s was acknowledged at %s, and has expired: %v", name, w.began, x.may)
	}
	return nil
}

// revive takes the expiry from a database, so that it can be looked at. gone: that was too late, and it has been deleted instead.
func (w *simWorld) revive(c *tonbo.Client, name string) (gone bool, err error) {
	n := w.names[name]
	_, err = c.Update(w.ctx, name, tonbo.UpdateOptions{ExpiresAt: new(time.Time)})
	switch {
	case err == nil:
		n.expiry.may = []time.Time{{}}
		return false, nil
	case errors.Is(err, tonbo.ErrExpired) && n.expiry.mayBePast(time.Now()) || errors.Is(err, tonbo.ErrDeleted) && n.dying:
		if err := c.Delete(w.ctx, name); err != nil {
			return false, broke("%s cannot be deleted any more: %v", name, err)
		}
		n.live = false
		return true, nil
	}
	return false, broke("the expiry of %s cannot be changed any more: %v", name, err)
}
