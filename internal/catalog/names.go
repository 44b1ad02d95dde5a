package catalog

import (
	"context"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// Incarnation is what a record's key tells.
type Incarnation struct {
	Slot uint64
	ID   fence.ID
}

// Names calls fn for each name with an index record that begins with prefix and comes after after (a name; "": from the first), until fn returns false. One LIST per 1,000 records, nothing
// else. of holds the name's incarnations, the oldest first: most have one, a name that was deleted or whose creation failed may have several until a janitor has been there.
//
// Names come in the order of their keys, where a name is followed by a slash: by bytes, but a name comes behind those that go on from it with - or . (run-1-a, run-1.a, run-1, run-10, run-1:a).
func Names(ctx context.Context, s remote.Store, prefix, after string, fn func(name string, of []Incarnation) bool) error {
	from := ""
	if after != "" {
		from = RecordPrefix + after + "/g" // behind every slot
	}
	var name string
	var of []Incarnation
	stopped := false
	flush := func() {
		if len(of) > 0 && !stopped {
			stopped = !fn(name, of)
		}
		of = nil
	}
	err := list(ctx, s, RecordPrefix+prefix, from, func(i remote.Info) bool {
		n, slot, id, ok := ParseRecordKey(i.Key)
		if !ok { // not ours
			return true
		}
		if n != name {
			flush()
			name = n
		}
		of = append(of, Incarnation{slot, id})
		return !stopped
	})
	if err != nil {
		return err
	}
	flush()
	return nil
}
