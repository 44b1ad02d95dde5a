package vfs_test

import (
	"context"
	"os"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo/vfs"
)

// endingSource ends the observation when the main file is next read.
type endingSource struct{ end func() error }

func (s *endingSource) Ensure(context.Context, int64, int64) error {
	if end := s.end; end != nil {
		s.end = nil
		return end()
	}
	return nil
}
func (s *endingSource) Write(_, _ int64, write func() error) error    { return write() }
func (s *endingSource) Truncate(_ int64, truncate func() error) error { return truncate() }

// TestConnectionThatOpensItsLogAfterTheEndWritesNothing: it has opened the main file before the observation ended, and opens the write-ahead log, with all of the database in it, after.
func TestConnectionThatOpensItsLogAfterTheEndWritesNothing(t *testing.T) {
	var s endingSource
	f := open(t, 4096, func(o *vfs.Options) { o.Source = &s })
	exec(t, f.db, "CREATE TABLE t(v)")
	exec(t, f.db, "INSERT INTO t VALUES(1)")
	wal := f.d.Path() + "-wal"
	before, err := os.ReadFile(wal)
	if err != nil {
		t.Fatal(err)
	}
	s.end = f.d.Detach // when the header is read
	late, err := sqlite3.Open("file:" + f.d.Path() + "?vfs=tonbo&tonbo=" + f.d.Token())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if err := late.Exec("INSERT INTO t VALUES(2)"); err == nil {
		t.Error("a COMMIT that nobody observed")
	}
	after, err := os.ReadFile(wal)
	if err != nil || string(after) != string(before) {
		t.Errorf("the write-ahead log was changed: %v", err)
	}
	if s.end != nil {
		t.Error("the observation has not ended")
	}
}
