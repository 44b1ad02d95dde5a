package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	sqlitedriver "github.com/ncruces/go-sqlite3/driver"
)

// What an agent keeps: runs, their steps with what was said and what tools answered, and a memory by key. Text of a skewed vocabulary beside identifiers
// and hashes, which compress badly: about 2.7 times in all with zstd's fastest level.
const schema = `
CREATE TABLE run(id INTEGER PRIMARY KEY, name TEXT NOT NULL, begun TEXT NOT NULL, model TEXT NOT NULL, status TEXT NOT NULL);
CREATE TABLE step(id INTEGER PRIMARY KEY, run INTEGER NOT NULL, at TEXT NOT NULL, role TEXT NOT NULL, tool TEXT, call TEXT NOT NULL, content TEXT NOT NULL, tokens INTEGER NOT NULL);
CREATE INDEX step_run ON step(run, id);
CREATE TABLE memory(key TEXT PRIMARY KEY, value TEXT NOT NULL, updated TEXT NOT NULL) WITHOUT ROWID;`

const (
	insertStep   = "INSERT INTO step(run, at, role, tool, call, content, tokens) VALUES(?,?,?,?,?,?,?)"
	upsertMemory = "INSERT INTO memory(key, value, updated) VALUES(?,?,?) ON CONFLICT(key) DO UPDATE SET value=excluded.value, updated=excluded.updated"
	stepsOfRun   = 200
	stepBytes    = 1500 // of the file, a step on average, with its index and the memory
)

// writer makes up rows: the same ones for the same seed.
type writer struct {
	r     *rand.Rand
	zipf  *rand.Zipf
	words []string
	step  int
}

func newWriter(seed uint64) *writer {
	w := &writer{r: rand.New(rand.NewPCG(seed, 0x746f6e626f))}
	w.zipf = rand.NewZipf(w.r, 1.07, 4, 11999)
	vocabulary := rand.New(rand.NewPCG(1, 1)) // one language for all
	const consonants, vowels = "bcdfghklmnprstvwz", "aeiou"
	for range 12000 {
		var b strings.Builder
		for range 1 + vocabulary.IntN(4) {
			b.WriteByte(consonants[vocabulary.IntN(len(consonants))])
			b.WriteByte(vowels[vocabulary.IntN(len(vowels))])
			if vocabulary.IntN(3) == 0 {
				b.WriteByte(consonants[vocabulary.IntN(len(consonants))])
			}
		}
		w.words = append(w.words, b.String())
	}
	return w
}

// text is about n bytes of prose.
func (w *writer) text(n int) string {
	var b strings.Builder
	b.Grow(n + 16)
	for b.Len() < n {
		b.WriteString(w.words[w.zipf.Uint64()])
		switch w.r.IntN(12) {
		case 0:
			b.WriteString(". ")
		case 1:
			b.WriteString(", ")
		default:
			b.WriteByte(' ')
		}
	}
	return b.String()
}

func (w *writer) hex(n int) string {
	const digits = "0123456789abcdef"
	b := make([]byte, n)
	for i := range b {
		b[i] = digits[w.r.IntN(16)]
	}
	return string(b)
}

func (w *writer) when() string {
	return time.Unix(1_750_000_000+int64(w.step)*7, int64(w.r.IntN(1e9))).UTC().Format(time.RFC3339Nano)
}

var tools = []string{"read_file", "search", "shell", "http_get", "write_file", "sql"}

// nextStep returns the arguments of insertStep: about n bytes of content.
func (w *writer) nextStep(n int) []any {
	w.step++
	run := 1 + w.step/stepsOfRun
	role, content := "assistant", ""
	var tool any
	if w.step%2 == 0 {
		role, tool = "tool", tools[w.r.IntN(len(tools))]
		content = fmt.Sprintf(`{"tool":%q,"exit":0,"sha256":%q,"path":"/srv/work/%s/%s.go","output":%q}`, tool, w.hex(64), w.words[w.r.IntN(len(w.words))], w.hex(12), w.text(max(16, n-180)))
	} else {
		content = w.text(max(16, n))
	}
	return []any{run, w.when(), role, tool, "call_" + w.hex(24), content, len(content) / 4}
}

func (w *writer) nextMemory(keys int) []any {
	return []any{fmt.Sprintf("fact/%06d", w.r.IntN(keys)), w.text(120 + w.r.IntN(200)), w.when()}
}

// generate writes a plain SQLite file of about so many bytes and returns how many steps it has. It is kept for later workloads of this process.
func (e *env) generate(ctx context.Context, bytes int64) (path string, steps int, err error) {
	e.files.Lock()
	defer e.files.Unlock()
	path = filepath.Join(e.tmp, fmt.Sprintf("source-%d.db", bytes))
	steps = int(bytes / stepBytes)
	if _, err := os.Stat(path); err == nil {
		return path, steps, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", 0, err
	}
	e.logf("making a database of %s", size(bytes))
	db, err := sqlitedriver.Open("file:" + path + "?_pragma=journal_mode(off)&_pragma=synchronous(off)&_pragma=cache_size(-200000)")
	if err != nil {
		return "", 0, err
	}
	db.SetMaxOpenConns(1)
	err = fillDatabase(ctx, db, steps)
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	return path, steps, err
}

// fillDatabase makes the tables and the steps.
func fillDatabase(ctx context.Context, db *sql.DB, steps int) error {
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	w := newWriter(7)
	for done := 0; done < steps; {
		n := min(20_000, steps-done)
		if err := insertSteps(ctx, db, w, n, steps); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// makeSmall makes a file with a few steps.
func makeSmall(ctx context.Context, file string, seed uint64) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	db, err := openModernc(file)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	return insertSteps(ctx, db, newWriter(seed), 5, 5)
}

// insertSteps adds n steps in one transaction.
func insertSteps(ctx context.Context, db *sql.DB, w *writer, n, memories int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	step, err := tx.PrepareContext(ctx, insertStep)
	if err != nil {
		return err
	}
	memory, err := tx.PrepareContext(ctx, upsertMemory)
	if err != nil {
		return err
	}
	for range n {
		if _, err := step.ExecContext(ctx, w.nextStep(500+w.r.IntN(1400))...); err != nil {
			return err
		}
		if w.step%8 == 0 {
			if _, err := memory.ExecContext(ctx, w.nextMemory(memories/4+1)...); err != nil {
				return err
			}
		}
		if w.step%stepsOfRun == 1 {
			if _, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO run(id, name, begun, model, status) VALUES(?,?,?,?,'done')", 1+w.step/stepsOfRun, "run-"+w.hex(8), w.when(), "model-"+w.hex(2)); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

// size is a number of bytes as people say it.
func size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.3g GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.3g MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.3g kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}
