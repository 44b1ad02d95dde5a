// Package tonbotest helps to test programs that use tonbo, and tonbo itself: an object store whose requests fail, get lost, are
// answered late or never, as the test says ([Store]), a disk that fails, fills up, tears writes and loses with the power what was not synced ([Disk]), and a clock that the
// test moves ([Clock]).
//
//	store := tonbotest.NewStore(mem.New("test"))
//	store.DropAnswer(tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}, 1)
//	db, err := tonbo.Create(ctx, "run-1", tonbo.Options{Remote: store})
//
// Faults are deterministic: a rule applies to the next n calls that match it, in the order in which calls arrive. The first rule
// that matches takes a call, in the order in which the rules were set.
package tonbotest
