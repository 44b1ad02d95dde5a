package sqltool

import (
	"context"
	"fmt"
	"sync/atomic"
)

// budget is the context of a call. The driver's progress handler asks it whether to go on, each progressSteps, so it can count. Others ask too (the driver for each row, reads of pages that are not here), so the count is a little high.
type budget struct {
	context.Context
	end   context.CancelCauseFunc
	steps int64 // at most
	asked atomic.Int64
}

func newBudget(ctx context.Context, steps int64) (*budget, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	return &budget{Context: ctx, end: cancel, steps: steps}, func() { cancel(nil) }
}

// Err implements [context.Context].
func (b *budget) Err() error {
	if b.asked.Add(progressSteps) > b.steps {
		b.end(&Error{Message: fmt.Sprintf("stopped: a call may take %d steps of SQLite's machine", b.steps), Hint: hintLess})
	}
	return b.Context.Err()
}
