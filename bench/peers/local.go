package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"time"

	"github.com/benbjohnson/litestream"
	sqlitedriver "github.com/ncruces/go-sqlite3/driver"

	"github.com/tonbo-go/tonbo"
)

// side is one of those that commit beside each other.
type side struct {
	name    string
	db      *sql.DB
	close   func() error
	commits times
	rates   []float64 // commits a second, by round
	longest []float64 // ms, by round
}

// local commits as fast as it goes, while what ships ships once a second: inserts of one row, and an agent's steps (one insert, one update, three reads). Each
// round is a stretch of time for each side in turn.
func local(ctx context.Context, e *env) error {
	for _, mixed := range []bool{false, true} {
		if err := e.localOf(ctx, mixed); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) localOf(ctx context.Context, mixed bool) error {
	d, err := e.bring(ctx, pick[int64](e, 10e6, 2e6))
	if err != nil {
		return err
	}
	p, err := e.through(line{})
	if err != nil {
		return err
	}
	defer p.close()
	sides, err := e.sides(ctx, d, p)
	defer func() {
		for _, s := range sides {
			_ = s.close() // what it says is not what is measured
		}
	}()
	if err != nil {
		return err
	}
	stretch := pick(e, 3*time.Second, 100*time.Millisecond)
	for i := range e.rounds {
		for k := range sides {
			if err := sides[(k+i)%len(sides)].run(ctx, mixed, stretch, d.steps); err != nil {
				return err
			}
		}
	}
	c := "inserts"
	if mixed {
		c = "agent steps"
	}
	for _, s := range sides {
		e.add(c, s.name, e.rounds, value{"commits/s", median(s.rates)}, value{"p50 µs", ms(s.commits.p50()) * 1e3}, value{"p99 µs", ms(s.commits.at(.99)) * 1e3}, value{"longest ms", median(s.longest)})
	}
	plain, ours := sides[0], sides[1]
	e.atLeast(c+": commits/s against plain", median(ours.rates)/median(plain.rates), 1.05)
	e.atMost(c+": longest against plain", median(ours.longest)/median(plain.longest), .5)
	return nil
}

// sides are plain SQLite on our driver first, then ours, then peers.
func (e *env) sides(ctx context.Context, d *imported, p *apart) (list []*side, err error) {
	dir, err := e.dir("local")
	if err != nil {
		return nil, err
	}
	file := func(name string) (string, error) {
		f := filepath.Join(dir, name)
		return f, copyFile(d.source, f)
	}
	f, err := file("plain")
	if err != nil {
		return nil, err
	}
	db, err := sqlitedriver.Open("file:" + f + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)")
	if err != nil {
		return nil, err
	}
	list = append(list, &side{name: "plain ncruces", db: db, close: db.Close})
	ours, done, err := e.forked(ctx, d, p.endpoint(), func(o *tonbo.Options) { o.SyncEvery = time.Second })
	if err != nil {
		return list, err
	}
	list = append(list, &side{name: "tonbo, ships every second", db: ours.DB, close: done})
	if !e.peers {
		return list, nil
	}
	if f, err = file("modernc"); err != nil {
		return list, err
	}
	if db, err = openModernc(f); err != nil {
		return list, err
	}
	list = append(list, &side{name: "plain modernc", db: db, close: db.Close})
	if openMattn != nil {
		if f, err = file("mattn"); err != nil {
			return list, err
		}
		if db, err = openMattn(f); err != nil {
			return list, err
		}
		list = append(list, &side{name: "plain mattn (cgo)", db: db, close: db.Close})
	}
	if f, err = file("litestream"); err != nil {
		return list, err
	}
	if db, err = openModernc(f); err != nil { // the same SQLite as litestream's own: two in one process would lose their locks
		return list, err
	}
	c := e.litestreamClient(p.endpoint(), e.fresh("litestream"))
	if err := c.Init(ctx); err != nil {
		return list, err
	}
	ls := litestream.NewDB(f) // its own intervals: one second
	ls.Replica = litestream.NewReplicaWithClient(ls, c)
	if err := ls.Open(); err != nil {
		return list, err
	}
	list = append(list, &side{name: "litestream (modernc)", db: db, close: func() error {
		db.Close()
		return ls.Close(ctx)
	}})
	return list, nil
}

// openMattn is set where mattn/go-sqlite3 is built in: mattn.go.
var openMattn func(file string) (*sql.DB, error)

// run commits for a while.
func (s *side) run(ctx context.Context, mixed bool, stretch time.Duration, rows int) error {
	s.db.SetMaxOpenConns(1)
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var stmts []*sql.Stmt
	for _, q := range []string{insertStep, "UPDATE step SET tokens=tokens+1 WHERE id=?", "SELECT content FROM step WHERE id=?"} {
		st, err := conn.PrepareContext(ctx, q)
		if err != nil {
			return err
		}
		defer st.Close()
		stmts = append(stmts, st)
	}
	w := newWriter(uint64(len(s.commits)) + 5)
	w.step = rows
	var pool [][]any // made before: it is not what is measured
	for range 512 {
		pool = append(pool, w.nextStep(200))
	}
	var longest time.Duration
	begin, n := time.Now(), 0
	for ; time.Since(begin) < stretch; n++ {
		args := pool[n%len(pool)]
		start := time.Now()
		if mixed {
			err = agentStep(ctx, conn, stmts, args, n, rows)
		} else {
			_, err = stmts[0].ExecContext(ctx, args...)
		}
		if err != nil {
			return err
		}
		took := time.Since(start)
		s.commits = append(s.commits, took)
		longest = max(longest, took)
	}
	s.rates = append(s.rates, float64(n)/time.Since(begin).Seconds())
	s.longest = append(s.longest, ms(longest))
	return nil
}

// agentStep is a transaction of an insert and an update, and three reads.
func agentStep(ctx context.Context, conn *sql.Conn, stmts []*sql.Stmt, args []any, n, rows int) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.StmtContext(ctx, stmts[0]).ExecContext(ctx, args...); err != nil {
		return err
	}
	if _, err := tx.StmtContext(ctx, stmts[1]).ExecContext(ctx, 1+n*7919%rows); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	for j := range 3 {
		var content string
		if err := stmts[2].QueryRowContext(ctx, 1+(n*104729+j*31)%rows).Scan(&content); err != nil {
			return err
		}
	}
	return nil
}
