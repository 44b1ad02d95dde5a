package tonbo

import (
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// UnitBytes is the size of a write unit in bytes, see [Usage].
const UnitBytes = 10 << 10

// account is what this handle has used since its claim, for the running totals in the log. Guarded by the round.
type account struct {
	owner          *fence.Owner  // whose claim it counts from
	start          remote.Counts // before that claim
	commits, units uint64        // stored
	collected      int64         // bytes deleted
	told           remote.Counts // when since was last asked
}

// units is how many write units a shipment is: one for each 10 KiB begun, and at least one a commit.
func units(commits int, bytes int64) uint64 {
	return max(uint64(commits), uint64((bytes+UnitBytes-1)/UnitBytes))
}

// since is the part of the totals that is ours, with the entry that is about to be appended and the shipment in it; nil: none. The caller holds the round.
func (h *handle) since(sh *shipment) *segment.Usage {
	owner, _ := h.current()
	a := &h.account
	n := h.counter.Counts()
	if a.owner != owner { // a Reopen: what its last owner counted is in the log
		*a = account{owner: owner, start: a.told, told: a.told}
	}
	n.Put++ // the append itself
	if sh != nil {
		n.BytesUp += sh.size
	}
	a.told = n
	u := &segment.Usage{
		Commits: a.commits, Units: a.units,
		Put: uint64(n.Put - a.start.Put), Get: uint64(n.Get - a.start.Get), Head: uint64(n.Head - a.start.Head), List: uint64(n.List - a.start.List),
		Delete: uint64(n.Delete - a.start.Delete), Up: uint64(n.BytesUp - a.start.BytesUp), Down: uint64(n.BytesDown - a.start.BytesDown),
	}
	stored := int64(owner.Entry().Usage.Stored) + int64(u.Up) - a.collected
	if sh != nil {
		u.Commits += uint64(sh.commits)
		u.Units += units(sh.commits, sh.bytes)
	}
	u.Stored = uint64(max(0, stored))
	u.Expires = h.expiring.seconds()
	return u
}

// count takes note that sh is stored. The caller holds the round.
func (h *handle) count(sh *shipment) {
	h.account.commits += uint64(sh.commits)
	h.account.units += units(sh.commits, sh.bytes)
}
