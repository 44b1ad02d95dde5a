package fence

// rule names one rule, or a part of one, that the model test switches off to see that the model finds out. Nothing but a test sets Log.broken.
type rule int

const (
	none            rule = iota
	twoInFlight          // R1: the next append does not wait for the one before
	unknownIsStored      // R2
	existsIsStored       // R2
	existsIsTaken        // R2
	newBytes             // R2: another entry for the same slot after an unknown try
	noSecondList         // R3, all three
	claimNoList          // R3
	deleteNoList         // R3
	rewindNoList         // R3
	headNotCompared      // reading the head: the GET may return another object than the LIST saw
	listedHeadGone       // reading the head: listed, then collected, means that there is no database
	noLook               // R4
	noLookForCreate      // R4
	noCheck              // R6
	deleteByName         // R7
	slotNotFixed         // R11
	unknownIsFailed      // R11
	recordAfter          // R11: the index record is put after the create
	voidNotReadBack      // R11
)
