package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tonbo-go/tonbo/internal/fsys"
)

// Options of Open. The zero value works.
type Options struct {
	Logger *slog.Logger // what was repaired while opening, at level Debug; nil: nowhere

	// Fault, for tests, is called at each named step that can fail or be the last: an error that it returns is that step's error; it may
	// also end the process. The steps are listed beside the calls.
	Fault func(step string) error
}

// Dir is one database's directory, locked for one process. Its methods may be called by several goroutines.
type Dir struct {
	root, path, escaped string
	o                   Options
	lock                *os.File
	files               fsys.FS

	mu        sync.Mutex
	j         journalState
	damaged   string // why there is no state
	file      *fsys.File
	size      int64  // bytes of the journal that hold records
	sum       uint64 // of the last record
	snap      int64  // bytes of the snapshot that the journal begins with
	stale     bool   // an append failed: the file lacks a record, so the next one rewrites it
	mark      uint64 // seq as of Captured
	capturing uint64 // slot of the entry that was captured last
	closed    bool

	log func() (salts [8]byte, end int64) // see FollowLog
}

// Names in a database's directory.
const (
	lockName  = "lock"
	stateName = "state"
	tempName  = "state.tmp"
	dbName    = "db"
)

// besideNames are what SQLite may have beside the database file. db-journal is never written by us: a leftover would be played back. db.lock is how the driver locks
// when it is built with sqlite3_dotlk, where -shm is an empty directory: a killed process leaves it, and another one that has its pid would keep it for good.
var besideNames = []string{dbName + "-wal", dbName + "-shm", dbName + "-journal", dbName + ".lock"}

// contentNames are what belongs to the database file itself.
var contentNames = append(slices.Clone(besideNames), "present", dbName)

// Open makes (mode 0700) and locks the directory of the database name under root; see escape for its name there.
//
// Errors: *LockedError (ErrLocked) while another process or handle has it; ErrDir when root cannot be made or written; ErrForeign when
// there is a database file without a state, or a state that this version cannot read: nothing is touched then. A state of another store, name or incarnation is
// not an error: compare State.
func Open(root, name string, o Options) (*Dir, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, unusable(root, err)
	}
	d := &Dir{root: abs, escaped: escape(name), o: o, files: fsys.At(abs)}
	d.path = filepath.Join(abs, d.escaped)
	for try := 0; ; try++ {
		above, err := d.files.MkdirAll(d.path, 0o700)
		if err == nil {
			err = d.keepNew(above)
		}
		if err != nil {
			return nil, unusable(d.path, err)
		}
		err = d.takeLock()
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || try == 3 { // RemoveThrowaways is at work
			return nil, err
		}
	}
	if err := d.load(name); err != nil {
		return nil, errors.Join(err, d.unlock())
	}
	return d, nil
}

// keepNew makes the directory, and those above it that are as new, outlive a power cut: what is committed in it is worth that. above is the one that was there before, "" when none is new.
func (d *Dir) keepNew(above string) error {
	for at := d.path; above != "" && at != above; {
		at = filepath.Dir(at)
		if err := d.files.SyncDir(at); err != nil && !errors.Is(err, fs.ErrPermission) { // one that we may not read is not ours to sync
			return err
		}
	}
	return nil
}

// boot names the boot of the machine that the directory is on.
func (d *Dir) boot() string {
	if h := d.files.Hook(); h != nil {
		if b := h.Boot(); b != "" {
			return b
		}
	}
	return bootID()
}

func unusable(path string, err error) error {
	return fmt.Errorf("%w: %s: %w; set Options.Dir or TONBO_DIR to a directory that can be written", ErrDir, path, err)
}

func (d *Dir) takeLock() error {
	path := filepath.Join(d.path, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return unusable(d.path, err)
	}
	ok, err := lockFile(f)
	if err != nil {
		return errors.Join(unusable(d.path, err), f.Close())
	}
	if !ok {
		b := make([]byte, 20)
		n, _ := f.ReadAt(b, 0)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(b[:n]))) // 0: the holder has not written it yet
		return errors.Join(&LockedError{Path: d.path, PID: pid}, f.Close())
	}
	pid := fmt.Sprintf("%-19d\n", os.Getpid()) // one fixed length: no moment at which half a number stands there
	if _, err := f.WriteAt([]byte(pid), 0); err != nil {
		return errors.Join(unusable(d.path, err), f.Close())
	}
	// It may have been removed between the two: another one has its place then, or will.
	at, err := os.Stat(path)
	if err == nil {
		var fi os.FileInfo
		if fi, err = f.Stat(); err == nil && !os.SameFile(fi, at) {
			err = &fs.PathError{Op: "lock", Path: path, Err: fs.ErrNotExist}
		}
	}
	if err != nil {
		return errors.Join(unusable(d.path, err), unlockFile(f), f.Close())
	}
	d.lock = f
	return nil
}

// load reads the state, or begins a vacant one in a fresh directory.
func (d *Dir) load(name string) error {
	if err := d.sweep(); err != nil {
		return unusable(d.root, err)
	}
	path := filepath.Join(d.path, stateName)
	f, err := d.files.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		for _, n := range contentNames {
			if _, err := os.Lstat(filepath.Join(d.path, n)); err == nil {
				return fmt.Errorf("%w: %s has no state beside it, so it is not known what it holds; move it away, or use another Dir (to make it a database: import it)",
					ErrForeign, filepath.Join(d.path, n))
			}
		}
		if err := d.rewrite(); err != nil {
			return unusable(d.path, err)
		}
		return nil
	}
	if err != nil {
		return unusable(d.path, err)
	}
	fi, err := f.Stat()
	if err != nil {
		return errors.Join(unusable(d.path, err), f.Close())
	}
	j, good, sum, err := replay(f, fi.Size())
	switch {
	case errors.Is(err, errDamaged):
		d.damaged = fmt.Sprintf("%s: %v", path, err)
		d.stale = true
		d.file = f
		return nil
	case errors.Is(err, ErrForeign):
		return errors.Join(fmt.Errorf("%s: %w; move it away, or use another Dir", path, err), f.Close())
	case err != nil:
		return errors.Join(unusable(d.path, err), f.Close())
	}
	if good < fi.Size() {
		d.o.Logger.Debug("state ends in a torn record: cut off", "path", path, "bytes", fi.Size()-good)
		d.stale = true // rewritten by the next change; until then it reads the same again
	}
	d.j, d.size, d.snap, d.sum, d.file = *j, good, good, sum, f
	return nil
}

// sweep removes temporary files that a killed process left; the lock is held, so nobody writes them now.
func (d *Dir) sweep() error {
	left := []string{filepath.Join(d.path, tempName)}
	entries, err := os.ReadDir(d.root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), d.escaped+lostInfix) && strings.HasSuffix(e.Name(), lostTemp) {
			left = append(left, filepath.Join(d.root, e.Name()))
		}
	}
	for _, p := range left {
		if err := d.files.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Path is the database file. SQLite's -wal and -shm stand beside it.
func (d *Dir) Path() string { return filepath.Join(d.path, dbName) }

// WALPath is the write-ahead log of the database file.
func (d *Dir) WALPath() string { return d.Path() + "-wal" }

// Root is the directory that databases' directories and files kept aside lie in.
func (d *Dir) Root() string { return d.root }

// Damaged says why State is nil although there was one; "" when the directory is fresh, vacant or sound.
func (d *Dir) Damaged() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.damaged
}

// State returns a copy of what is known; nil when nothing here is usable: the directory is fresh, or was Reset, or Damaged says
// why.
func (d *Dir) State() *State {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.j.state == nil {
		return nil
	}
	return d.j.state.clone()
}

// Close lets go of the lock and leaves all files. A second Close does nothing.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	return errors.Join(d.end(), d.unlock())
}

// end closes the state's file. The lock is held still.
func (d *Dir) end() error {
	d.closed = true
	if d.file == nil {
		return nil
	}
	return d.file.Close()
}

func (d *Dir) unlock() error { return errors.Join(unlockFile(d.lock), d.lock.Close()) }

// Remove is Close, and all of the directory goes: the database, what is known of it, the lock. Files kept aside stay.
func (d *Dir) Remove() error {
	if err := d.Reset(); err != nil {
		return errors.Join(err, d.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if err := d.end(); err != nil {
		return errors.Join(err, d.unlock())
	}
	return d.vanish()
}

// fault is the test's hook at a step.
func (d *Dir) fault(step string) error {
	if d.o.Fault == nil {
		return nil
	}
	return d.o.Fault("cache:" + step)
}

// Reset removes the database and what is known of it; the lock and the files kept aside stay.
func (d *Dir) Reset() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	// 1. A vacant state: from here on the directory is ours and holds nothing, whichever files are still there. (Without any state the
	// files would look foreign; with the old one it would lie.)
	// 2. The files.
	d.j = journalState{}
	d.damaged = ""
	if err := d.rewrite(); err != nil {
		return fmt.Errorf("reset %s: %w", d.path, err)
	}
	if err := d.fault("reset:vacant"); err != nil {
		return err
	}
	for _, n := range contentNames {
		if err := d.files.Remove(filepath.Join(d.path, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reset: %w", err)
		}
		if err := d.fault("reset:removed"); err != nil {
			return err
		}
	}
	if err := d.files.SyncDir(d.path); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return d.fault("reset:done")
}
