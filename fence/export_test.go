package fence

import (
	"slices"

	"github.com/tonbo-go/tonbo/remote"
)

// Rules that the tests can break, by name.
var rules = []struct {
	name string
	rule rule
}{
	{"R1 two appends in flight", twoInFlight},
	{"R2 unknown taken for stored", unknownIsStored},
	{"R2 412 taken for stored", existsIsStored},
	{"R2 412 taken for fenced", existsIsTaken},
	{"R2 new bytes for the same slot", newBytes},
	{"R3 no second LIST", noSecondList},
	{"R3 no second LIST for claim", claimNoList},
	{"R3 no second LIST for delete", deleteNoList},
	{"R3 no second LIST for rewind", rewindNoList},
	{"R3 head not compared with the LIST", headNotCompared},
	{"R3 listed head gone = no database", listedHeadGone},
	{"R4 no look at the next slot", noLook},
	{"R4 not for create", noLookForCreate},
	{"R6 no check", noCheck},
	{"R7 delete aims at the name", deleteByName},
	{"R11 slot not fixed", slotNotFixed},
	{"R11 unknown = failed", unknownIsFailed},
	{"R11 record after the create", recordAfter},
	{"R11 void not read back", voidNotReadBack},
	{"R11 janitor without void", janitorWithoutVoid},
	{"R11 check before the pin", checkBeforePin},
	{"R11 no check after the pin", noCheckAfterPin},
	{"R10 the end is no horizon for a fork", endIsNoHorizon},
	{"R10 horizon falls", horizonFalls},
	{"R10 rewind checks the horizon once", rewindChecksOnce},
}

// Broken names every rule that Break can break.
func Broken() []string {
	var names []string
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}

// Break makes l break one rule.
func Break(l *Log, name string) {
	i := slices.IndexFunc(rules, func(r struct {
		name string
		rule rule
	}) bool {
		return r.name == name
	})
	l.broken = rules[i].rule
}

// Serial makes l send one request after the other, for schedulers that run one goroutine.
func Serial(l *Log) { l.serial = true }

// MaxTail is how many slots a Tail names at most.
const MaxTail = maxTail

// Decode reads an object as the entry of a slot.
func Decode(obj remote.Object, slot uint64) (*Entry, error) { return decode(obj, slot, true) }
