package catalog

// rule names a part of Once that a test switches off, to see that it would be noticed. Nothing but a test sets it.
type rule string

// Rules that the tests break.
const (
	absentHasFailed rule = "an attempt that nothing has come of yet is taken for one that has failed"
	notReadBack     rule = "what is in an attempt's place is not read back"
	undoneUndecided rule = "an attempt that was refused is undone before its slot is decided"
)

// Rules names all of them.
var Rules = []string{string(absentHasFailed), string(notReadBack), string(undoneUndecided)}

// Break returns o with one of the rules broken.
func Break(o Once, name string) Once {
	o.broken = rule(name)
	return o
}
