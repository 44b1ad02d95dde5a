package sqltest

import (
	"fmt"
	"math"
	"strings"
)

// Every table has the columns k, a, b and c, whatever else it is.
var tables = []string{"t0", "t1", "t2", "t3", "t4", "t5"}

func (s *Script) table() string { return tables[s.rng.IntN(len(tables))] }

// value is one of any type, and of those that are taken for one another.
func (s *Script) value() any {
	switch s.rng.IntN(12) {
	case 0:
		return nil
	case 1, 2, 3:
		return int64(s.rng.IntN(200) - 20)
	case 4:
		// Not the largest integer: as a row's id it makes SQLite draw the next ones at random.
		return []any{int64(1<<53 + 1), int64(math.MinInt64), int64(1), 1.0, 0.0, math.Copysign(0, -1), math.Inf(1), 1e300}[s.rng.IntN(8)]
	case 5:
		return s.rng.NormFloat64() * 100
	case 6, 7:
		return fmt.Sprintf("word%d %s", s.rng.IntN(50), strings.Repeat("ä", s.rng.IntN(30)))
	case 8:
		return s.one("", "1", "1.0", "null", "x\x00y", "\xff\xfe")
	case 9:
		return s.blob(s.rng.IntN(20000)) // overflow pages
	default:
		return s.blob(s.rng.IntN(300))
	}
}

func (s *Script) blob(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		if i%64 == 0 || n < 64 {
			b[i] = byte(s.rng.Uint32())
		}
	}
	return b
}

func (s *Script) values(n int) []any {
	v := make([]any, n)
	for i := range v {
		v[i] = s.value()
	}
	return v
}

// begin adds what a life begins with.
func (s *Script) begin() {
	for _, t := range tables {
		s.create(0, t)
	}
	for _, v := range virtual {
		s.add(0, "CREATE VIRTUAL TABLE "+v)
	}
}

var virtual = []string{"f0 USING fts5(a, b UNINDEXED)", "f1 USING fts5(a, content='')", "f2 USING fts5(a, prefix='2 3', tokenize='porter')", "r0 USING rtree(k, x0, x1, y0, y1)"}

func (s *Script) create(conn int, t string) {
	s.write(conn, "CREATE TABLE "+s.one("", "IF NOT EXISTS ")+t+s.one(
		"(k INTEGER PRIMARY KEY, a, b, c)",
		"(k INTEGER PRIMARY KEY AUTOINCREMENT, a TEXT, b BLOB, c INT DEFAULT 7)",
		"(k PRIMARY KEY, a, b, c) WITHOUT ROWID",
		"(k, a, b, c)",
		"(k INT, a TEXT COLLATE NOCASE, b, c INT, UNIQUE(k, a))",
		"(k INTEGER PRIMARY KEY, a TEXT, b BLOB, c INT) STRICT",
		"(k INTEGER PRIMARY KEY, a NOT NULL ON CONFLICT IGNORE, b, c CHECK(c IS NULL OR c<1000000))",
		"(k INTEGER PRIMARY KEY, a, b, c, d AS (length(a)) STORED, e AS (c+1))",
		"(k INTEGER PRIMARY KEY, a, b, c, FOREIGN KEY(c) REFERENCES t0(k) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED)",
		"(c, b, a, k TEXT, PRIMARY KEY(k, c) ON CONFLICT REPLACE) WITHOUT ROWID",
	))
}

// define adds a change of the schema.
func (s *Script) define(conn int) {
	t, n := s.table(), s.rng.IntN(4)
	switch s.rng.IntN(20) {
	case 0, 1, 2, 3, 4, 5, 6:
		s.create(conn, t)
	case 7:
		s.write(conn, "DROP TABLE "+s.one("", "IF EXISTS ")+t)
	case 8, 9, 10:
		s.write(conn, fmt.Sprintf("CREATE %s INDEX i%d ON %s(%s)%s", s.one("", "", "UNIQUE"), s.rng.IntN(6), t,
			s.one("a", "c, a", "b DESC", "length(a), c", "k, c DESC", "a COLLATE NOCASE"), s.one("", "", " WHERE c IS NOT NULL")))
	case 11:
		s.write(conn, fmt.Sprintf("DROP INDEX IF EXISTS i%d", s.rng.IntN(6)))
	case 12:
		s.write(conn, fmt.Sprintf("CREATE TRIGGER g%d %s %s ON %s BEGIN %s; END", n, s.one("AFTER", "BEFORE"), s.one("INSERT", "UPDATE", "DELETE", "UPDATE OF c"), t,
			s.one("UPDATE "+s.table()+" SET c=c+1 WHERE rowid IN (SELECT rowid FROM "+s.table()+" ORDER BY rowid LIMIT 2)",
				"INSERT OR IGNORE INTO "+s.table()+"(k, a) VALUES(abs(coalesce(max(1,(SELECT count(*) FROM sqlite_schema)),1)), 'by a trigger')",
				"DELETE FROM "+s.table()+" WHERE c=13", "SELECT RAISE(IGNORE) WHERE (SELECT count(*) FROM "+t+")%11=10")))
	case 13:
		s.write(conn, fmt.Sprintf("DROP TRIGGER IF EXISTS g%d", n))
	case 14:
		s.write(conn, fmt.Sprintf("CREATE VIEW v%d AS SELECT k, a, c FROM %s WHERE c>=0 UNION ALL SELECT k, a, c FROM %s", n, t, s.table()))
	case 15:
		s.write(conn, fmt.Sprintf("DROP VIEW IF EXISTS v%d", n))
	case 16:
		s.write(conn, "ALTER TABLE "+t+" "+s.one("ADD COLUMN x DEFAULT 'x'", "DROP COLUMN x", "RENAME COLUMN x TO y", "RENAME COLUMN y TO x", "RENAME TO old", "ADD COLUMN z INT NOT NULL DEFAULT 3"))
	case 17:
		s.write(conn, "CREATE VIRTUAL TABLE IF NOT EXISTS "+s.one(virtual...))
	case 18:
		s.write(conn, "DROP TABLE IF EXISTS "+s.one("f0", "f1", "f2", "r0", "old"))
	case 19:
		s.add(conn, "CREATE TEMP TABLE IF NOT EXISTS p(k, a, b, c)")
		s.add(conn, "INSERT INTO p SELECT k, a, b, c FROM "+t+" ORDER BY c LIMIT 5")
	}
}

func (s *Script) insert(conn int) {
	t := s.table()
	switch s.rng.IntN(13) {
	case 0, 1, 2, 3:
		s.write(conn, "INSERT INTO "+t+"(a, b, c) VALUES(?,?,?)", s.values(3)...)
	case 4, 5:
		s.write(conn, "INSERT OR "+s.one("IGNORE", "REPLACE", "FAIL", "ABORT")+" INTO "+t+"(k, a, b, c) VALUES(?,?,?,?),(?,?,?,?)", s.values(8)...)
	case 6:
		s.write(conn, "INSERT INTO "+t+"(k, a, b, c) VALUES(?,?,?,?) ON CONFLICT DO "+s.one("NOTHING", "UPDATE SET c=coalesce(c,0)+1, a=excluded.a")+s.one("", " RETURNING k, a, c"), s.values(4)...)
	case 7:
		s.write(conn, "INSERT OR IGNORE INTO "+t+"(k, a, b, c) SELECT c, a, b, k FROM "+s.table()+" ORDER BY k LIMIT 20")
	case 8:
		s.write(conn, "REPLACE INTO "+t+"(k, a, b, c) VALUES(?,?,?,?) RETURNING *", s.values(4)...)
	case 9, 10:
		switch f := s.one("f0", "f1", "f2"); {
		case s.in(6):
			s.write(conn, "INSERT INTO "+f+"("+f+") VALUES('"+s.one("optimize", "rebuild", "integrity-check", "merge=4")+"')")
		default:
			s.write(conn, "INSERT INTO "+f+"(rowid, a) VALUES(?, ?)", s.rng.IntN(100), fmt.Sprintf("running word%d lorem%d fence", s.rng.IntN(20), s.rng.IntN(20)))
		}
	case 11:
		x, y := s.rng.IntN(100), s.rng.IntN(100)
		s.write(conn, "INSERT OR REPLACE INTO r0 VALUES(?,?,?,?,?)", s.rng.IntN(60), x, x+s.rng.IntN(9), y, y+s.rng.IntN(9))
	case 12:
		s.write(conn, "INSERT OR ROLLBACK INTO "+t+"(k, a, b, c) VALUES(?,?,?,?)", s.values(4)...)
	}
}

// change adds UPDATEs and DELETEs.
func (s *Script) change(conn int) {
	t := s.table()
	switch s.rng.IntN(11) {
	case 0, 1:
		s.write(conn, "UPDATE "+t+" SET b=?, c=? WHERE c%5=?", s.value(), s.value(), s.rng.IntN(5))
	case 2:
		s.write(conn, "UPDATE OR "+s.one("IGNORE", "REPLACE", "FAIL")+" "+t+" SET k=?, a=? WHERE k=?", s.value(), s.value(), s.rng.IntN(60))
	case 3:
		s.write(conn, "UPDATE "+t+" SET a=o.a, c=o.c FROM (SELECT k, a, c FROM "+s.table()+" ORDER BY k LIMIT 5) AS o WHERE "+t+".k=o.k RETURNING "+t+".k")
	case 4, 5:
		s.write(conn, "DELETE FROM "+t+" WHERE c%7=?", s.rng.IntN(7))
	case 6:
		s.write(conn, "DELETE FROM "+t+" WHERE k IN (SELECT k FROM "+t+" ORDER BY a, k LIMIT ?) RETURNING k, typeof(b)", s.rng.IntN(9))
	case 7:
		s.write(conn, "DELETE FROM "+t) // the truncate optimization
	case 8:
		s.write(conn, "DELETE FROM "+s.one("f0", "f2", "r0")+" WHERE rowid%5=1")
	case 9:
		s.write(conn, "UPDATE r0 SET x1=x1+1, y0=y0-1 WHERE k%3=0")
	case 10:
		s.write(conn, "UPDATE f0 SET a=a||' more' WHERE rowid%4=0")
	}
}

func (s *Script) read(conn int) {
	t, o := s.table(), s.table()
	switch s.rng.IntN(14) {
	case 0, 1:
		s.add(conn, "SELECT * FROM "+t)
	case 2:
		s.add(conn, "SELECT count(*), min(k), max(a), total(c), group_concat(typeof(b)) FROM "+t)
	case 3:
		s.add(conn, "SELECT x.k, y.a FROM "+t+" x JOIN "+o+" y ON x.c=y.c ORDER BY 1, 2 LIMIT 40")
	case 4:
		s.add(conn, "SELECT c, count(*), sum(length(b)) FROM "+t+" GROUP BY c HAVING count(*)>1 ORDER BY c")
	case 5:
		s.add(conn, "SELECT k, row_number() OVER (ORDER BY a, k), lag(c) OVER (PARTITION BY typeof(a) ORDER BY k) FROM "+t+" ORDER BY 1, 2")
	case 6:
		s.add(conn, "SELECT k, a FROM "+t+" "+s.one("EXCEPT", "INTERSECT", "UNION")+" SELECT k, a FROM "+o+" ORDER BY 1, 2")
	case 7:
		s.add(conn, "SELECT k, a, hex(substr(b, -9)) FROM "+t+" WHERE a>=? AND c BETWEEN ? AND ? ORDER BY a DESC, k", s.value(), s.rng.IntN(50), s.rng.IntN(200))
	case 8:
		s.add(conn, "SELECT rowid, a FROM "+s.one("f0", "f2")+"('"+s.one("fence", "word1*", "lorem3 NOT word4", "run", `"word5 lorem6"`)+"') ORDER BY rank, rowid")
	case 9:
		s.f(conn, "SELECT k, x0, y1 FROM r0 WHERE x0<%d AND y1>%d ORDER BY k", s.rng.IntN(100), s.rng.IntN(100))
	case 10:
		s.add(conn, "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema ORDER BY rowid")
	case 11:
		s.f(conn, "SELECT * FROM v%d", s.rng.IntN(4))
	case 12:
		s.add(conn, "SELECT changes(), last_insert_rowid()")
	case 13:
		s.add(conn, s.one("SELECT * FROM p", "SELECT * FROM sqlite_sequence", "SELECT tbl, idx, stat FROM sqlite_stat1", "SELECT * FROM aux.u ORDER BY k", "SELECT nosuch FROM t0", "SELEKT 1", "SELECT abs(-9223372036854775808)"))
	}
}
