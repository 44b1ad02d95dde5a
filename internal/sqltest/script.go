package sqltest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A Step is one thing to do on one of two connections.
type Step struct {
	Conn int // 0 or 1
	SQL  string
	Args []any // an [Own] becomes a path of the database's own

	// Blind: what it says depends on when checkpoints happen. Only whether it fails may be compared.
	Blind bool
}

// Own is an argument that stands for a file of this name, one for each of the databases that are compared.
type Own string

func (s Step) String() string {
	args := make([]string, len(s.Args))
	for i, a := range s.Args {
		if b, ok := a.([]byte); ok && len(b) > 16 {
			args[i] = fmt.Sprintf("blob of %d bytes %x...", len(b), b[:8])
		} else {
			args[i] = fmt.Sprintf("%#v", a)
		}
	}
	return fmt.Sprintf("%d: %s [%s]", s.Conn, s.SQL, strings.Join(args, ", "))
}

// Script makes steps by seed. It follows which connection is in a transaction, so that no step waits for a lock that the other connection holds; it does not
// follow the schema: a statement may be about a table that is not there, which is an error on both sides.
type Script struct {
	rng  *rand.Rand
	next []Step
	open [2]bool // in a transaction
	done [2]bool // it may have written
	aux  [2]bool // another file is attached
}

// New returns the script of a seed.
func New(seed uint64) *Script {
	s := &Script{rng: rand.New(rand.NewPCG(seed, 8))}
	s.begin()
	return s
}

// Rand is the script's source: what the caller draws from it is part of the run.
func (s *Script) Rand() *rand.Rand { return s.rng }

// Quiet tells whether no transaction is open.
func (s *Script) Quiet() bool { return !s.open[0] && !s.open[1] }

// Settle ends the transactions that are open.
func (s *Script) Settle() []Step {
	var steps []Step
	for c, open := range s.open {
		if open {
			steps = append(steps, Step{Conn: c, SQL: s.one("COMMIT", "ROLLBACK")}, Step{Conn: c, SQL: "ROLLBACK"}) // a COMMIT fails when a foreign key points nowhere
		}
	}
	s.next = nil
	return steps
}

// Reconnected says that connections are new: nothing is attached, and there are no temporary tables.
func (s *Script) Reconnected() { s.aux, s.open, s.done = [2]bool{}, [2]bool{}, [2]bool{} }

// InTransaction says, after a step, whether its connection is in a transaction: a COMMIT may have failed, or an error have rolled back.
func (s *Script) InTransaction(conn int, open bool) {
	s.done[conn] = open && (s.done[conn] || !s.open[conn])
	s.open[conn] = open
}

// Next is the next step.
func (s *Script) Next() Step {
	for {
		if len(s.next) > 0 {
			st := s.next[0]
			s.next = s.next[1:]
			return st
		}
		conn := 0
		if s.rng.IntN(4) == 0 {
			conn = 1
		}
		if s.done[1-conn] { // the other one has the writer's lock
			if s.rng.IntN(3) > 0 {
				conn = 1 - conn
			} else {
				s.read(conn)
				continue
			}
		}
		s.draw(conn)
	}
}

func (s *Script) one(of ...string) string { return of[s.rng.IntN(len(of))] }
func (s *Script) in(n int) bool           { return s.rng.IntN(n) == 0 }
func (s *Script) add(conn int, q string, args ...any) {
	s.next = append(s.next, Step{Conn: conn, SQL: q, Args: args})
}
func (s *Script) f(conn int, format string, args ...any) { s.add(conn, fmt.Sprintf(format, args...)) }

// write adds a statement that may write.
func (s *Script) write(conn int, q string, args ...any) {
	s.done[conn] = s.done[conn] || s.open[conn]
	s.add(conn, q, args...)
}

// draw adds what comes next on a connection.
func (s *Script) draw(conn int) {
	switch n := s.rng.IntN(100); {
	case n < 30:
		s.insert(conn)
	case n < 42:
		s.change(conn)
	case n < 58:
		s.read(conn)
	case n < 70:
		s.define(conn)
	case n < 84:
		s.transaction(conn)
	case n < 91:
		s.pragma(conn)
	case n < 94:
		s.bulk(conn)
	case n < 97:
		s.attach(conn)
	default:
		s.maintain(conn)
	}
}

// maintain adds what works on the whole file.
func (s *Script) maintain(conn int) {
	switch s.rng.IntN(8) {
	case 0:
		s.write(conn, "VACUUM")
	case 1: // shrinks, and grows over pages that it never writes
		s.write(conn, "DELETE FROM "+s.table())
		s.write(conn, "VACUUM")
	case 7:
		s.write(conn, "SAVEPOINT g")
		s.write(conn, "CREATE TABLE IF NOT EXISTS grown(v)")
		s.write(conn, "INSERT INTO grown VALUES(zeroblob(?))", 1000*(1+s.rng.IntN(300)))
		s.write(conn, "DROP TABLE grown")
		s.write(conn, "RELEASE g")
	case 2:
		s.f(conn, "PRAGMA auto_vacuum=%d", s.rng.IntN(3))
		s.write(conn, "VACUUM")
	case 3:
		s.write(conn, "ANALYZE")
	case 4:
		s.write(conn, "REINDEX")
	case 5:
		s.write(conn, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", s.rng.IntN(20)))
	case 6:
		if s.Quiet() {
			s.next = append(s.next, Step{Conn: conn, SQL: "PRAGMA wal_checkpoint(" + s.one("PASSIVE", "FULL", "RESTART", "TRUNCATE") + ")", Blind: true})
		}
	}
}

func (s *Script) transaction(conn int) {
	if !s.open[conn] {
		how := s.one("BEGIN", "BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "SAVEPOINT a")
		s.add(conn, how)
		s.open[conn], s.done[conn] = true, strings.HasSuffix(how, "E")
		return
	}
	switch s.rng.IntN(9) {
	case 0, 1, 2:
		s.add(conn, "COMMIT")
	case 3:
		s.add(conn, "ROLLBACK")
	case 4, 5:
		s.add(conn, "SAVEPOINT "+s.one("a", "b", "c"))
	case 6, 7:
		s.add(conn, "ROLLBACK TO "+s.one("a", "b", "c"))
	case 8:
		s.add(conn, "RELEASE "+s.one("b", "c")) // of the outermost one it would be a COMMIT
	}
}

func (s *Script) pragma(conn int) {
	switch s.rng.IntN(12) {
	case 0:
		s.write(conn, fmt.Sprintf("PRAGMA user_version=%d", s.rng.Int32()))
	case 1:
		s.write(conn, fmt.Sprintf("PRAGMA application_id=%d", s.rng.Int32()))
	case 2:
		s.f(conn, "PRAGMA cache_size=%d", 5+s.rng.IntN(40)) // transactions spill
	case 3:
		s.add(conn, "PRAGMA foreign_keys="+s.one("ON", "OFF"))
	case 4:
		s.add(conn, "PRAGMA secure_delete="+s.one("ON", "OFF", "FAST"))
	case 5:
		s.add(conn, "PRAGMA integrity_check")
	case 6:
		s.add(conn, "PRAGMA foreign_key_check")
	case 7:
		s.add(conn, "PRAGMA "+s.one("page_count", "freelist_count", "schema_version", "auto_vacuum", "user_version", "encoding", "page_size", "journal_mode"))
	case 8:
		s.add(conn, "PRAGMA recursive_triggers="+s.one("ON", "OFF"))
	case 9:
		s.add(conn, "PRAGMA temp_store="+s.one("FILE", "MEMORY", "DEFAULT"))
	case 10:
		s.add(conn, "PRAGMA defer_foreign_keys="+s.one("ON", "OFF"))
	case 11:
		s.add(conn, "PRAGMA "+s.one("table_list", "table_xinfo(t1)", "index_list(t2)", "foreign_key_list(t3)", "quick_check", "synchronous", "cache_spill"))
	}
}

// bulk adds a transaction that is larger than the page cache, which pages leave and come back to.
func (s *Script) bulk(conn int) {
	t := s.table()
	n := 20 + s.rng.IntN(150)
	if !s.open[conn] {
		s.add(conn, "PRAGMA cache_size=5")
		s.add(conn, "BEGIN IMMEDIATE")
	}
	rows := "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<" + fmt.Sprint(n) + ") "
	s.write(conn, rows+"INSERT OR IGNORE INTO "+t+"(k, a, b, c) SELECT n*"+fmt.Sprint(1+s.rng.IntN(50))+", 'bulk-' || n, zeroblob(n*"+fmt.Sprint(s.rng.IntN(40))+"), n%7 FROM s")
	s.write(conn, "UPDATE OR IGNORE "+t+" SET b=CAST(hex(b) AS BLOB), c=c+1 WHERE c%3=0")
	s.add(conn, "SAVEPOINT bulk")
	s.write(conn, "DELETE FROM "+t+" WHERE c%2=0")
	if s.in(2) {
		s.add(conn, "ROLLBACK TO bulk")
	}
	s.add(conn, "RELEASE bulk")
	if !s.open[conn] {
		s.add(conn, s.one("COMMIT", "COMMIT", "ROLLBACK"))
		s.add(conn, "PRAGMA cache_size=-2000")
	}
}

// attach adds work on another file beside the database.
func (s *Script) attach(conn int) {
	if s.open[conn] {
		return
	}
	if !s.aux[conn] {
		s.aux[conn] = true
		s.add(conn, "ATTACH ? AS aux", Own(fmt.Sprint("aux-", conn)))
		return
	}
	switch s.rng.IntN(4) {
	case 0:
		s.aux[conn] = false
		s.add(conn, "DETACH aux")
	case 1:
		s.add(conn, "CREATE TABLE aux.u(k INTEGER PRIMARY KEY, a, b, c)")
	default:
		s.add(conn, "BEGIN IMMEDIATE")
		s.add(conn, "INSERT INTO aux.u(a, b, c) SELECT a, b, c FROM main."+s.table()+" ORDER BY k LIMIT 9")
		s.add(conn, "INSERT OR IGNORE INTO main."+s.table()+"(k, a, b, c) SELECT k, a, b, c FROM aux.u ORDER BY k DESC LIMIT 9")
		s.add(conn, "SELECT count(*), sum(c) FROM aux.u")
		s.add(conn, s.one("COMMIT", "ROLLBACK"))
	}
}
