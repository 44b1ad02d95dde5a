package vfs

import "github.com/ncruces/go-sqlite3"

// Stopper may be implemented by a connection's interrupt context ([sqlite3.Conn.SetInterrupt]), to end what SQLite does in one step as well: it counts, empties and drops a table of any size without a question whether to go on.
// StopRead is asked before each page that the connection reads, in the goroutine that runs the statement; true makes that read fail with SQLITE_IOERR_READ, and the statement with it. (Not SQLITE_INTERRUPT: only after an I/O error does SQLite forget what it has in memory, should the read have been one of a rollback.) Say so once for a statement, and only
// when the progress handler has not been asked for longer than an ordinary step takes.
type Stopper interface{ StopRead() bool }

// stopped asks a connection's context, if it wants to be asked.
func stopped(c *sqlite3.Conn) bool {
	if c == nil {
		return false
	}
	s, ok := c.GetInterrupt().(Stopper)
	return ok && s.StopRead()
}
