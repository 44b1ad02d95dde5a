package tonbo_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// mainFileSize waits until the main file of the only database under dir has at least size bytes, and returns what it has at last.
func mainFileSize(t *testing.T, dir string, size int64) int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("main files: %v, %v", files, err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		fi, err := os.Stat(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if fi.Size() >= size || time.Now().After(end) {
			return fi.Size()
		}
	}
}

func TestCheckpointsAreMadeBesideCommits(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine().Checkpointing(64 << 10)
	db := open(t, "run", o)
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t(v)")
	for range 40 { // far below what makes a COMMIT do it
		exec(t, db, "INSERT INTO t VALUES(randomblob(8000))")
	}
	if got := mainFileSize(t, o.Dir, 64<<10); got < 64<<10 {
		t.Errorf("the main file has %d bytes", got)
	}
	synced(t, db)
	want := rows(t, db, "SELECT count(*) || ' ' || sum(length(v)) FROM t")
	closeDB(t, db)
	db = open(t, "run", a.machine())
	integrity(t, db)
	if got := rows(t, db, "SELECT count(*) || ' ' || sum(length(v)) FROM t"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestWriteAheadLogBeginsAnewThoughWritersLeaveNoGap: and it stays bounded, whatever ships beside.
func TestWriteAheadLogBeginsAnewThoughWritersLeaveNoGap(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	const begins, limit = 64 << 10, 16 * 64 << 10
	o := a.machine().Checkpointing(begins)
	o.SyncEvery = time.Millisecond
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
	for i := range 1000 {
		exec(t, db, fmt.Sprintf("INSERT OR REPLACE INTO t VALUES(%d, randomblob(9000))", i%50))
	}
	fi, err := os.Stat(walFile(t, o.Dir)) // it does not become shorter
	if err != nil {
		t.Fatal(err)
	}
	most := fi.Size()
	if serial, _ := db.WALFrames(); serial < 2 {
		t.Errorf("the write-ahead log of %d bytes has begun anew %d times", most, serial)
	}
	if most > limit*9/8 {
		t.Errorf("the write-ahead log has come to %d bytes, the limit is %d", most, limit)
	}
	synced(t, db)
	closeDB(t, db)
	integrity(t, open(t, "run", a.machine()))
}

// walFile is the write-ahead log of the only database under dir.
func walFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("main files: %v, %v", files, err)
	}
	return files[0] + "-wal"
}

// TestCheckpointsMindFilesAttachedBeside: SQLite's own automatic checkpoint would.
func TestCheckpointsMindFilesAttachedBeside(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	db.SetMaxOpenConns(1)
	other := filepath.Join(t.TempDir(), "other.db")
	exec(t, db, "ATTACH '"+other+"' AS other")
	exec(t, db, "PRAGMA other.journal_mode=wal")
	exec(t, db, "CREATE TABLE other.t(v)")
	for range 20 {
		exec(t, db, "INSERT INTO other.t VALUES(randomblob(1000000))")
	}
	fi, err := os.Stat(other)
	if err != nil {
		t.Fatal(err)
	}
	if fi.Size() < 10e6 {
		t.Errorf("the attached file has %d bytes", fi.Size())
	}
	exec(t, db, "DETACH other")
}

// TestCheckpointsBesideGetInNobodysWay: with one connection nothing is ever busy, as without them.
func TestCheckpointsBesideGetInNobodysWay(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine().Checkpointing(4096))
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t(v)")
	ctx := t.Context()
	for i := range 300 {
		exec(t, db, "INSERT INTO t VALUES(randomblob(30000))")
		switch i % 3 {
		case 0: // a reader that becomes a writer is not waited for by SQLite
			tx, err := db.BeginTx(ctx, &sql.TxOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var n int
			if err := tx.QueryRow("SELECT count(*) FROM t").Scan(&n); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("UPDATE t SET v=randomblob(30000) WHERE rowid=?", n/2); err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		case 1:
			for _, mode := range []string{"PASSIVE", "FULL", "RESTART", "TRUNCATE"} {
				var busy, log, done int
				if err := db.QueryRow("PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &log, &done); err != nil {
					t.Fatal(err)
				}
				if busy != 0 || log != done {
					t.Fatalf("round %d, %s: busy %d, %d of %d", i, mode, busy, done, log)
				}
			}
		}
	}
	integrity(t, db)
}

// TestConnectionsComeInBesideCheckpoints: the connection for checkpoints is often the only one when it is opened or closed; SQLite keeps others out meanwhile, and they do not wait here.
func TestConnectionsComeInBesideCheckpoints(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine().Checkpointing(4096)
	o.Pragmas = map[string]string{"busy_timeout": "0"}
	db := open(t, "run", o)
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(0)
	exec(t, db, "CREATE TABLE t(v)")
	for range 12 {
		exec(t, db, "INSERT INTO t VALUES(randomblob(9000))")
		for end := time.Now().Add(150 * time.Millisecond); time.Now().Before(end); { // it is let go of in this time
			rows(t, db, "SELECT count(*) FROM t")
		}
	}
	integrity(t, db)
}

func TestWhoSetsAutocheckpointMakesThemAlone(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine().Checkpointing(4096)
	o.Pragmas = map[string]string{"WAL_autocheckpoint": "0"}
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v)")
	if got := rows(t, db, "PRAGMA wal_autocheckpoint"); got != "0" {
		t.Errorf("got %s", got)
	}
	for range 50 {
		exec(t, db, "INSERT INTO t VALUES(randomblob(8000))")
	}
	if got := mainFileSize(t, o.Dir, 0); got > 4096 || db.Checkpoints() {
		t.Errorf("the main file has %d bytes; in the background: %v", got, db.Checkpoints())
	}
}

// TestCheckpointsBesideEndWithTheHandle: also while they are made, and when it is taken back.
func TestCheckpointsBesideEndWithTheHandle(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	for range 15 {
		db := open(t, "run", a.machine().Checkpointing(4096))
		exec(t, db, "CREATE TABLE IF NOT EXISTS t(v)")
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				db.ExecContext(ctx, "INSERT INTO t VALUES(randomblob(20000))") // refused while it is being taken back
			}
		}()
		for range 3 {
			if err := db.Reopen(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		<-done
		synced(t, db)
		closeDB(t, db)
	}
	integrity(t, open(t, "run", a.machine()))
}
