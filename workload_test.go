package tonbo_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
)

// The workload of the crash tests: numbered transactions, each of which touches four tables, so that a gap, a half transaction or one that was applied
// twice shows. What a state must hold follows from table a alone.

const (
	smallRow   = 3000      // bytes of most rows of filler
	largeRow   = 5 << 20   // bytes of some: their entries name segments
	wipeEvery  = 10        // filler is emptied by each such transaction, and the database shrinks with the next VACUUM
	largeEvery = 25        // when large rows are asked for
	slots      = wipeEvery // of filler
)

// commit names one transaction: its number, and the generation that made it.
type commit struct {
	Seq int
	Gen uint64
}

// content is n bytes that follow from c.
func content(c commit, n int) []byte {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(c.Seq))
	binary.LittleEndian.PutUint64(seed[8:], c.Gen)
	b := make([]byte, n)
	rand.NewChaCha8(seed).Read(b)
	return b
}

const schema = `CREATE TABLE a(seq INTEGER PRIMARY KEY, gen INTEGER, size INTEGER, body BLOB);
CREATE TABLE b(seq INTEGER PRIMARY KEY, sum INTEGER);
CREATE TABLE filler(slot INTEGER PRIMARY KEY, seq INTEGER, v BLOB);
CREATE TABLE total(n INTEGER);
INSERT INTO total VALUES(0)`

// step makes one transaction.
func step(db *sql.DB, c commit, large bool) error {
	size := smallRow
	if large && c.Seq%largeEvery == largeEvery-1 {
		size = largeRow
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	body := content(c, 200)
	for _, q := range []struct {
		q    string
		args []any
	}{
		{"INSERT INTO a VALUES(?,?,?,?)", []any{c.Seq, c.Gen, size, body}},
		{"DELETE FROM filler WHERE ?", []any{c.Seq%wipeEvery == 0}},
		{"INSERT OR REPLACE INTO filler VALUES(?,?,?)", []any{c.Seq % slots, c.Seq, content(c, size)}},
		{"UPDATE total SET n = n + 1", nil},
		{"INSERT INTO b VALUES(?,?)", []any{c.Seq, crc32.ChecksumIEEE(body)}},
	} {
		if _, err := tx.Exec(q.q, q.args...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// rollback writes more than the page cache holds, over pages that matter, and takes it back.
func rollback(db *sql.DB) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, q := range []string{
		"UPDATE a SET body = zeroblob(200)", "DELETE FROM b", "UPDATE total SET n = -1",
		"INSERT OR REPLACE INTO filler SELECT value + 100, 0, randomblob(4000) FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]')",
		"UPDATE filler SET v = zeroblob(2000)",
	} {
		if _, err := tx.Exec(q); err != nil {
			return err
		}
	}
	return tx.Rollback()
}

// housekeeping is what goes on between transactions: checkpoints of all kinds and VACUUM.
func housekeeping(db *sql.DB, seq int) error {
	var busy, log, done int
	switch seq % 12 {
	case 2:
		return db.QueryRow("PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &log, &done)
	case 5:
		return db.QueryRow("PRAGMA wal_checkpoint(RESTART)").Scan(&busy, &log, &done)
	case 8:
		return db.QueryRow("PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &log, &done)
	case 11:
		_, err := db.Exec("VACUUM")
		return err
	}
	return nil
}

// lastSeq is the number of the last transaction in a database.
func lastSeq(db *sql.DB) (seq int, err error) {
	err = db.QueryRow("SELECT coalesce(max(seq), 0) FROM a").Scan(&seq)
	return seq, err
}

// inspect checks that a database holds exactly what the transactions in its table a lead to, that these are numbered without a gap and in
// the order of generations, and that it is sound. It returns them.
func inspect(ctx context.Context, db *sql.DB) ([]commit, error) {
	found, err := inspectFork(ctx, db)
	for i := 1; i < len(found); i++ {
		if found[i-1].Gen > found[i].Gen {
			return nil, fmt.Errorf("transaction %d is of generation %d, the one before of %d", found[i].Seq, found[i].Gen, found[i-1].Gen)
		}
	}
	return found, err
}

// inspectFork is inspect for what may be a fork: its own generations begin anew behind those of its source.
func inspectFork(ctx context.Context, db *sql.DB) ([]commit, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	var ok string
	if err := tx.QueryRow("PRAGMA integrity_check").Scan(&ok); err != nil || ok != "ok" {
		return nil, fmt.Errorf("integrity_check: %s %w", ok, err)
	}
	var found []commit
	sizes := map[int]int{}
	r, err := tx.Query("SELECT a.seq, gen, size, body, coalesce(sum, -1) FROM a LEFT JOIN b USING(seq) ORDER BY a.seq")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for r.Next() {
		var c commit
		var size int
		var sum int64
		var body []byte
		if err := r.Scan(&c.Seq, &c.Gen, &size, &body, &sum); err != nil {
			return nil, err
		}
		switch {
		case c.Seq != len(found)+1:
			return nil, fmt.Errorf("a gap: transaction %d follows %d", c.Seq, len(found))
		case !bytes.Equal(body, content(c, 200)) || sum != int64(crc32.ChecksumIEEE(body)):
			return nil, fmt.Errorf("transaction %d is not whole", c.Seq)
		}
		found = append(found, c)
		sizes[c.Seq] = size
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	var total, inB int
	if err := tx.QueryRow("SELECT n, (SELECT count(*) FROM b) FROM total").Scan(&total, &inB); err != nil {
		return nil, err
	}
	if total != len(found) || inB != len(found) {
		return nil, fmt.Errorf("%d transactions, of which %d have their second row, and %d were counted", len(found), inB, total)
	}
	want := map[int]commit{}
	for _, c := range found {
		if c.Seq%wipeEvery == 0 {
			clear(want)
		}
		want[c.Seq%slots] = c
	}
	f, err := tx.Query("SELECT slot, seq, v FROM filler")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n := 0
	for ; f.Next(); n++ {
		var slot, seq int
		var v []byte
		if err := f.Scan(&slot, &seq, &v); err != nil {
			return nil, err
		}
		if c := want[slot]; c.Seq != seq || !bytes.Equal(v, content(c, sizes[seq])) {
			return nil, fmt.Errorf("filler %d holds %d bytes of transaction %d, want those of %d", slot, len(v), seq, c.Seq)
		}
	}
	if n != len(want) {
		return nil, fmt.Errorf("%d rows of filler, want %d", n, len(want))
	}
	return found, f.Err()
}

// inspectFile is inspect for a plain SQLite file.
func inspectFile(ctx context.Context, path string) ([]commit, error) {
	return inspectFileBy(ctx, path, inspect)
}

func inspectFileBy(ctx context.Context, path string, by func(context.Context, *sql.DB) ([]commit, error)) ([]commit, error) {
	db, err := sql.Open("sqlite3", "file:"+strings.ReplaceAll(path, "#", "%23")+"?mode=ro")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return by(ctx, db)
}
