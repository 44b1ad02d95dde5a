package tonbo_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
)

// TestDamageFoundWhileAReopenFailsIsNotForgotten: COMMITs stay refused.
func TestDamageFoundWhileAReopenFailsIsNotForgotten(t *testing.T) {
	a := newAccount(t)
	a.grown("run", 8000, true)
	before := open(t, "run", a.lazyMachine())
	var keys []string
	for _, s := range before.Base().Bottom() {
		keys = append(keys, s.Key)
	}
	closeDB(t, before)
	forgePage(t, a.store, keys)
	db := open(t, "run", a.lazyMachine())
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	insert := func() error {
		_, err := conn.ExecContext(t.Context(), "INSERT INTO other(v) VALUES('x')")
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	reopened := make(chan error, 1)
	go func() { reopened <- db.Reopen(ctx) }()
	for {
		if err := insert(); err != nil && strings.Contains(err.Error(), "being reopened") {
			break
		}
		time.Sleep(time.Millisecond)
	}
	wantIs(t, "Hydrated", db.Hydrated(context.Background()), tonbo.ErrCorrupt)
	wantIs(t, "Err", db.Err(), tonbo.ErrCorrupt)
	wantIs(t, "a COMMIT", insert(), tonbo.ErrCorrupt)
	cancel()
	wantIs(t, "Reopen", <-reopened, context.Canceled)
	wantIs(t, "Err after it", db.Err(), tonbo.ErrCorrupt)
	wantIs(t, "a COMMIT after it", insert(), tonbo.ErrCorrupt)
	conn.Close()
	db.Close() // tells of what was committed before, if anything was
}
