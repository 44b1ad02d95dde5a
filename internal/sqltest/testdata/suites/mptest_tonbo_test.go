package mptest

import (
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs/tests/observed"
)

// Test_tonbo runs SQLite's mptest on tonbo's VFS: several connections, some of which die in the middle of a transaction. Scripts that change the journal mode or the page size cannot run there.
func Test_tonbo(t *testing.T) {
	for _, script := range []string{"multiwrite01.test", "crash01.test"} {
		t.Run(script, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			db := observed.New(t, path)
			runTest(t, "mptest", path, script, "--vfs", observed.Name, "--journalmode", "wal")
			db.Check()
		})
	}
}
