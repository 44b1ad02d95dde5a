package tonbo

import (
	"github.com/ncruces/go-sqlite3"
	sqlitedriver "github.com/ncruces/go-sqlite3/driver"
)

// What a connection keeps of statements, at most.
const MaxKeptStmts, MaxKeptText, MaxKeptMemory = maxKeptStmts, maxKeptText, maxKeptMemory

// RawOf is the SQLite connection of what sql.Conn's Raw gives, without telling the connection, which would keep no statements any more.
func RawOf(dc any) *sqlite3.Conn {
	if c, ok := dc.(*conn); ok {
		return c.Conn.Raw()
	}
	return dc.(sqlitedriver.Conn).Raw()
}

// KeptOf are the texts of the statements that such a connection keeps, the one used last behind the others, and the memory that they take.
func KeptOf(dc any) (texts []string, memory int) {
	e := &dc.(*conn).execs
	for _, s := range e.kept {
		texts = append(texts, s.text)
	}
	return texts, e.memory
}
