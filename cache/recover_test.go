package cache_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

var pageSizes = []int{512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}

// TestUnshippedCommitsSurviveAKill: what a killed process had committed is there, whatever state file and WAL were in, and told apart from what
// was shipped.
func TestUnshippedCommitsSurviveAKill(t *testing.T) {
	scenarios := []struct {
		name string
		do   func(l *live)
	}{
		{"nothing since shipped", func(l *live) { l.exec(insert("t", 1, 20, 100)); l.ship() }},
		{"nothing at all", func(l *live) {}},
		{"commits in the WAL only", func(l *live) { l.exec(insert("t", 1, 20, 100)); l.exec(insert("t", 300, 330, 400)) }},
		{"shipped and unshipped commits in the WAL", func(l *live) {
			l.exec(insert("t", 1, 20, 100))
			l.ship()
			l.exec(insert("t", 5, 30, 200))
			l.exec("UPDATE t SET v=randomblob(50) WHERE id=1")
		}},
		{"back to the shipped content", func(l *live) {
			l.exec("UPDATE t SET v=zeroblob(300) WHERE id=7")
			l.ship()
			l.exec("UPDATE t SET v=zeroblob(299)||x'01' WHERE id=7")
			l.exec("UPDATE t SET v=zeroblob(300) WHERE id=7")
		}},
		{"an uncommitted transaction at the end, spilled", func(l *live) {
			l.exec(insert("t", 1, 20, 100))
			l.exec("PRAGMA cache_size=5; BEGIN; " + insert("t", 1000, 3000, 300))
		}},
		{"a spilled transaction with pages rewritten in place", func(l *live) {
			l.exec("PRAGMA cache_size=5; BEGIN; " + insert("t", 1000, 2000, 300) + "; UPDATE t SET v=randomblob(300) WHERE id%3=0; " + insert("u", 1, 500, 100) + "; COMMIT")
		}},
		{"a spill rolled back and left in the WAL", func(l *live) {
			l.exec("UPDATE t SET v=randomblob(10) WHERE id=3")
			l.ship()
			l.exec("PRAGMA cache_size=5; BEGIN; " + insert("t", 1000, 2000, 300) + "; ROLLBACK; UPDATE t SET v=randomblob(10) WHERE id=4")
		}},
		{"a savepoint rolled back", func(l *live) {
			l.exec("PRAGMA cache_size=5; BEGIN; " + insert("t", 400, 450, 300) + "; SAVEPOINT a; " + insert("t", 1000, 2000, 300) + "; ROLLBACK TO a; COMMIT")
		}},
		{"checkpointed in part and not reset", func(l *live) {
			l.exec(insert("t", 1, 20, 100))
			l.ship()
			l.exec(insert("t", 10, 40, 200))
			r := openSQLite(l.t, l.dir.Path())
			l.t.Cleanup(func() { r.Close() })
			execSQL(l.t, r, "BEGIN; SELECT count(*) FROM t") // keeps the WAL from being restarted
			l.exec("PRAGMA wal_checkpoint(PASSIVE)")
			l.exec(insert("t", 30, 50, 210))
			l.exec("PRAGMA wal_checkpoint(PASSIVE)")
		}},
		{"checkpointed and not reset, nothing shipped since the beginning", func(l *live) {
			l.exec(insert("t", 10, 40, 200))
			l.exec("PRAGMA wal_checkpoint(PASSIVE)")
		}},
		{"restarted with frames beyond the new end", func(l *live) {
			l.exec(insert("t", 1, 200, 310))
			l.spill()
			l.exec("PRAGMA wal_checkpoint(RESTART)")
			l.exec("UPDATE t SET v=randomblob(10) WHERE id=4")
		}},
		{"restarted, checkpointed again, not reset", func(l *live) {
			l.exec(insert("t", 1, 200, 310))
			l.ship()
			l.exec(insert("t", 1, 20, 110))
			l.spill()
			l.exec("PRAGMA wal_checkpoint(RESTART)")
			l.exec("UPDATE t SET v=randomblob(10) WHERE id IN (4, 50, 100, 150)")
			l.exec("PRAGMA wal_checkpoint(PASSIVE)")
		}},
		{"spilled and truncated", func(l *live) {
			l.exec(insert("t", 300, 500, 310))
			l.spill()
			l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
		}},
		{"shipped after a spill", func(l *live) {
			l.exec(insert("t", 1, 50, 310))
			l.spill()
			l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
			l.exec(insert("t", 1, 50, 300))
			l.ship()
			l.exec("UPDATE t SET v=randomblob(10) WHERE id=4")
		}},
		{"shrunk by VACUUM", func(l *live) {
			l.exec(insert("t", 300, 900, 310))
			l.ship()
			l.exec("DELETE FROM t WHERE id>50")
			l.exec("VACUUM")
		}},
		{"shrunk by VACUUM and truncated", func(l *live) {
			l.exec(insert("t", 300, 900, 310))
			l.ship()
			l.exec("DELETE FROM t WHERE id>50; VACUUM")
			l.spill()
			l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
		}},
		{"shrunk, truncated and regrown over pages that are never written", func(l *live) {
			l.exec(insert("t", 300, 900, 310))
			l.ship()
			l.exec("DELETE FROM t WHERE id>50; VACUUM")
			l.spill()
			l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
			l.exec("BEGIN; " + insert("u", 1, 700, 310) + "; DELETE FROM u; COMMIT")
		}},
		{"the same, spilled and truncated", func(l *live) {
			l.exec(insert("t", 300, 900, 310))
			l.ship()
			l.exec("DELETE FROM t WHERE id>50; VACUUM")
			l.spill()
			l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
			l.exec("BEGIN; " + insert("u", 1, 700, 310) + "; DELETE FROM u; COMMIT")
			l.spill()
			l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
		}},
		{"shrunk and regrown in one WAL", func(l *live) {
			l.exec(insert("t", 300, 900, 310))
			l.ship()
			l.exec("DELETE FROM t WHERE id>50; VACUUM")
			l.exec("BEGIN; " + insert("u", 1, 900, 310) + "; DELETE FROM u; COMMIT")
		}},
		{"grown over pages that are never written", func(l *live) {
			l.exec("BEGIN; " + insert("u", 1, 700, 310) + "; DELETE FROM u; COMMIT")
		}},
		{"a blob with overflow pages", func(l *live) {
			l.exec("INSERT INTO t VALUES(9999, randomblob(300000))")
			l.ship()
			l.exec("DELETE FROM t WHERE id=9999; INSERT INTO u VALUES(1, randomblob(200000))")
		}},
	}
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			for _, size := range pageSizes {
				if testing.Short() && size != 4096 {
					continue
				}
				t.Run(fmt.Sprint(size), func(t *testing.T) {
					l := newLive(t, size)
					sc.do(l)
					d, rec := mustRecover(t, l.crash(), size, l.shipped)
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
					// Again: what the first Recover left is as good, unshipped pages included.
					d, again := mustRecover(t, d.Root(), size, l.shipped)
					if again.Checksum != rec.Checksum {
						t.Error("a second Recover finds another database")
					}
					// And on: another process writes, and is killed.
					c := openSQLite(t, d.Path())
					execSQL(t, c, "PRAGMA wal_autocheckpoint=0; "+insert("t", 40, 80, 250))
					next := &live{t: t, root: d.Root(), dir: d, pageSize: size}
					root := next.crash()
					c.Close()
					mustRecover(t, root, size, l.shipped)
				})
			}
		})
	}
}

// TestLockFileOfAKilledProcessIsRemoved: the driver's, when it is built with sqlite3_dotlk. It names a process that is alive, but another one.
func TestLockFileOfAKilledProcessIsRemoved(t *testing.T) {
	l := newLive(t, 4096)
	l.exec(insert("t", 1, 10, 280))
	root := l.crash()
	lock := filepath.Join(root, dbOf, "db.lock")
	if err := os.WriteFile(lock, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, rec := recoverDir(t, root); len(rec.Damaged) > 0 {
		t.Errorf("damaged: %s", rec.Reason)
	}
	if _, err := os.Lstat(lock); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
}
