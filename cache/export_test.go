package cache

import (
	"bytes"
	"context"
)

// Escape is escape.
func Escape(name string) string { return escape(name) }

// Replay tells whether b is a journal, and how much of it counts.
func Replay(b []byte) (*State, int64, error) {
	j, good, _, err := replay(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, 0, err
	}
	return j.state, good, nil
}

// Damaged tells whether Replay found damage.
var ErrDamaged = errDamaged

// ScanWAL returns the end of what counts in a WAL, the pages in it and the size of the database after it.
func ScanWAL(b []byte) (end int64, pages int, pageCount uint32, err error) {
	w, err := scanWAL(context.Background(), bytes.NewReader(b), func(uint32) versions { return versions{} })
	if err != nil {
		return 0, 0, 0, err
	}
	return w.end, len(w.pages), w.pageCount, nil
}

// SetBoot makes the state one of another boot.
func (d *Dir) SetBoot(boot string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.j.state.Boot = boot
	return d.rewrite()
}

// ShmPath is SQLite's index of the write-ahead log of the database file.
func (d *Dir) ShmPath() string { return d.Path() + "-shm" }
