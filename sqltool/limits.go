package sqltool

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo"
)

// Limits bounds each call. A zero field means its default.
type Limits struct {
	Rows      int           // rows returned by a call; default 200
	Bytes     int           // bytes of JSON of the rows returned by a call; default 64 KiB
	CellBytes int           // bytes of one text or blob returned, before it is cut; default 4 KiB
	Time      time.Duration // for a call, Synced not counted; default 10 s. It also bounds what large sorts write to temporary files, which nothing else does
	Steps     int64         // instructions of SQLite's virtual machine in a call, to about a hundred; default 1e9. https://sqlite.org/opcode.html
	Memory    int64         // bytes that SQLite may use for a call; default 48 MiB, at least 8 MiB, at most 1 GiB

	ValueBytes int   // bytes of any string, blob or row, also one that is only computed with; default 512 KiB. A longer one can neither be made nor read. It bounds what a single step of SQLite can take, which nothing interrupts
	SQLBytes   int   // bytes of the SQL text; default 64 KiB
	GrowBytes  int64 // bytes by which the database may grow in a call, less up to an eighth; default 256 MiB

	Multi     bool     // a call may have several statements, up to 100, and transactions
	ReadOnly  bool     // nothing is changed: the connection is query_only, and each statement must be one that SQLite calls read-only
	SyncEach  bool     // a call that wrote ends with Synced
	Triggers  bool     // CREATE TRIGGER is allowed. A trigger runs later, in the program's own connections too, where nothing of this package checks what it does
	Functions []string // SQL functions allowed beside those of SQLite that run in linear time: ones that the program has registered, or regexp, json_patch, decimal_mul. Nothing interrupts one call of them
}

const maxStatements = 100 // of a call with Limits.Multi

func (l Limits) withDefaults() (Limits, error) {
	l.Rows = cmp.Or(l.Rows, 200)
	l.Bytes = cmp.Or(l.Bytes, 64<<10)
	l.CellBytes = cmp.Or(l.CellBytes, 4<<10)
	l.Time = cmp.Or(l.Time, 10*time.Second)
	l.Steps = cmp.Or(l.Steps, 1e9)
	l.Memory = cmp.Or(l.Memory, 48<<20)
	l.ValueBytes = cmp.Or(l.ValueBytes, 512<<10)
	l.SQLBytes = cmp.Or(l.SQLBytes, 64<<10)
	l.GrowBytes = cmp.Or(l.GrowBytes, 256<<20)
	for name, v := range map[string]int64{"Rows": int64(l.Rows), "Bytes": int64(l.Bytes), "CellBytes": int64(l.CellBytes), "Time": int64(l.Time), "Steps": l.Steps,
		"ValueBytes": int64(l.ValueBytes), "SQLBytes": int64(l.SQLBytes), "GrowBytes": l.GrowBytes} {
		if v < 0 {
			return l, fmt.Errorf("%w: Limits.%s is negative", tonbo.ErrInvalid, name)
		}
	}
	if l.Memory < 8<<20 || l.Memory > 1<<30 {
		return l, fmt.Errorf("%w: Limits.Memory is %d, want 8 MiB to 1 GiB", tonbo.ErrInvalid, l.Memory)
	}
	if max := l.Memory / 4; int64(l.ValueBytes) > max || int64(l.SQLBytes) > max {
		return l, fmt.Errorf("%w: Limits.ValueBytes and SQLBytes may be a quarter of Memory at most", tonbo.ErrInvalid)
	}
	return l, nil
}
