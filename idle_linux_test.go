package tonbo_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
)

// openFiles counts this process's open files under dir.
func openFiles(t *testing.T, dir string) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if f, err := os.Readlink(fd); err == nil && strings.HasPrefix(f, dir) {
			n++
		}
	}
	return n
}

// TestIdleDatabasesHoldAFileEach: the lock, and of goroutines only those that a sql.DB has, of which one ends within a minute of the last connection.
func TestIdleDatabasesHoldAFileEach(t *testing.T) {
	a := newAccount(t)
	o := a.machine()
	const n = 20
	before := runtime.NumGoroutine()
	var dbs []*tonbo.DB
	for i := range n {
		name := string(rune('a' + i))
		a.create(name)
		db := open(t, name, o)
		dbs = append(dbs, db)
		exec(t, db, "CREATE TABLE t(v)")
		if i%2 == 0 {
			synced(t, db)
		}
		db.SetMaxIdleConns(-1) // as after a minute
		if i%2 == 1 {
			synced(t, db)
		}
	}
	var files, goroutines int
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if files, goroutines = openFiles(t, o.Dir), runtime.NumGoroutine()-before; files <= n && goroutines <= 2*n {
			break
		}
	}
	if files > n || goroutines > 2*n {
		t.Errorf("%d idle databases hold %d files and %d goroutines", n, files, goroutines)
	}
	for _, db := range dbs { // and are as good as before
		exec(t, db, "INSERT INTO t VALUES(1)")
		synced(t, db)
		if got := rows(t, db, "SELECT v FROM t"); got != "1" {
			t.Errorf("got %s", got)
		}
	}
}

// TestIdleDatabaseHoldsAFileAfterItsLastCheckpoint: the connection for checkpoints is let go of after the program's last one, and writes down then what was not shipped.
func TestIdleDatabaseHoldsAFileAfterItsLastCheckpoint(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine().Checkpointing(4096)
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v)")
	exec(t, db, "INSERT INTO t VALUES(randomblob(100000))")
	db.SetMaxIdleConns(-1)
	files := 0
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if files = openFiles(t, o.Dir); files <= 1 {
			return
		}
	}
	t.Errorf("%d files", files)
}
