package gc

import "time"

// rule names one rule that the model test switches off. Nothing but a test sets Options.broken.
type rule string

// Rules that Break can break. What each would lose is in docs/testing.md.
const (
	PinsBeforeHead    = "R10 pins listed before the head"
	PinsIgnored       = "R10 pins ignored"
	LabelsIgnored     = "R10 labels not kept"
	HorizonNotInLog   = "R10 horizon not in the log"
	EndBeyondAll      = "R10 the end is a horizon beyond everything"
	ChildLetsGo       = "R10 child lets go by its base alone"
	MiddleLetsGo      = "R10 deleted middle lets go"
	OwnPinsIgnored    = "R10 own pins not counted"
	OwnPinsByName     = "R10 own pins counted by name"
	ForeignByName     = "R10 foreign by name"
	NewestNotKept     = "R9 newest generation not kept"
	NewestBaseNotKept = "R9 newest generation not kept, bases alone"
	HeadBeforeSlot    = "R11 janitor reads the head before the slot"
	ClaimCollected    = "R5 claim collected"
	DeleteCollected   = "R5 delete collected"
	RewindCollected   = "R5 rewind collected"
	CreateCollected   = "R5 create collected"
	VoidCollected     = "R5 void collected"
	NoLogGrace        = "R10 no grace for log slots"
	PacksIgnored      = "R10 packs of a base not counted"
	UpperIgnored      = "R10 upper object of a base not counted"
)

// Rules names all of them.
var Rules = []string{
	PinsBeforeHead, PinsIgnored, LabelsIgnored, HorizonNotInLog, EndBeyondAll, ChildLetsGo, MiddleLetsGo, OwnPinsIgnored, OwnPinsByName,
	NewestNotKept, NewestBaseNotKept, HeadBeforeSlot, ClaimCollected, DeleteCollected, RewindCollected, CreateCollected, VoidCollected, NoLogGrace,
	PacksIgnored, UpperIgnored, ForeignByName,
}

// ForTest returns o with another floor under the grace of log slots, and with one rule broken ("": none).
func ForTest(o Options, broken string, floor time.Duration) Options {
	o.floor, o.broken = &floor, rule(broken)
	return o
}
