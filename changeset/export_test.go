package changeset

import "github.com/ncruces/go-sqlite3"

// Break leaves out one of the rules by which rows are compared.
func (o *Options) Break(rule string) { o.broken = rule }

// Told calls f with what came of Pages: "used", or why it was not.
func (o *Options) Told(f func(string)) { o.used = f }

// Guarded runs one statement as those that came with a set are run.
func Guarded(c *sqlite3.Conn, q string) error {
	return guarded(c, func() error { return runOne(c, q) })
}

// Creates tells whether SQL is taken for one statement that creates an object.
func Creates(typ, name, sql string) error { return creates(typ, name, sql) }

// ParseVirtual reads CREATE VIRTUAL TABLE.
func ParseVirtual(sql string) (module string, args []string) { return parseVirtual(sql) }
