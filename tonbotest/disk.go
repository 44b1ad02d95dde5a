package tonbotest

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/tonbo-go/tonbo/internal/fsys"
)

// DiskOp is what is done to a file or a directory. The empty one stands for all.
type DiskOp string

// The operations of a [Disk]. Those of SQLite on the database and its write-ahead log are among them; its shared memory (-shm), which means nothing after a crash, is
// not, and neither is the lock of the local copy.
const (
	FileCreate   DiskOp = DiskOp(fsys.Create)
	FileRead     DiskOp = DiskOp(fsys.Read)
	FileWrite    DiskOp = DiskOp(fsys.Write)
	FileTruncate DiskOp = DiskOp(fsys.Truncate) // also to a larger size
	FileTimes    DiskOp = DiskOp(fsys.Times)    // a modification time is set
	FileSync     DiskOp = DiskOp(fsys.Sync)
	FileRename   DiskOp = DiskOp(fsys.Rename)
	FileLink     DiskOp = DiskOp(fsys.Link)
	FileRemove   DiskOp = DiskOp(fsys.Remove)
	DirCreate    DiskOp = DiskOp(fsys.Mkdir)
	DirSync      DiskOp = DiskOp(fsys.SyncDir)
)

// DiskMatch picks operations. The zero value picks all.
type DiskMatch struct {
	Op   DiskOp
	File string // only files and directories with such a name, as [path.Match] has it: "db-wal", "state*", "*.lost-*"
	Skip int    // let that many of them pass first
}

func (m DiskMatch) fits(op fsys.Op) bool {
	if m.File != "" {
		if ok, err := path.Match(m.File, filepath.Base(op.Path)); err != nil || !ok {
			return false
		}
	}
	return m.Op == "" || m.Op == DiskOp(op.Kind)
}

// sector is what a disk writes as one, in bytes.
const sector = 512

// Disk is a directory for Options.Dir on a disk that does what the test says: operations fail, the disk fills up, writes are torn, and a power cut takes what was not
// synced. What is done above it (a commit that must be durable, a state that must be old or new) is then looked at after a restart.
//
//	disk, err := tonbotest.NewDisk(t.TempDir())
//	defer disk.Close()
//	db, err := tonbo.Open(ctx, "run-1", tonbo.Options{Remote: store, Dir: disk.Dir()})
//	...
//	disk.Cut(0)                      // the power goes: nothing is done to the files any more
//	db.Close()                       // lets go of the files; its error says nothing
//	err = disk.PowerLoss(seed)       // what may be there when it is back
//	db, err = tonbo.Open(ctx, "run-1", tonbo.Options{Remote: store, Dir: disk.Dir()})
//
// Faults are deterministic: a rule applies to the next n operations that match it, in the order in which they are made. A Disk is safe for concurrent use, but Restart
// and PowerLoss come when no DB has its files open.
type Disk struct {
	dir     string
	unmount func()

	mu    sync.Mutex
	rules []*diskRule
	ops   int   // changes made, or tried
	cut   int   // the change with this number is not made any more, nor any after it; < 0: none
	room  int64 // bytes by which files may grow still; < 0: any
	boot  int
	rng   *rand.Rand // of torn writes
	files *files
}

type diskRule struct {
	match      DiskMatch
	skip, left int
	err        error
	torn, lie  bool
}

// NewDisk makes the directory dir such a disk. What is in it already counts as durable. Close it.
func NewDisk(dir string) (*Disk, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, err
	}
	d := &Disk{dir: dir, cut: -1, room: -1, rng: rand.New(rand.NewPCG(1, 1))}
	if d.files, err = readFiles(dir); err != nil {
		return nil, err
	}
	d.unmount = fsys.Mount(dir, diskHook{d})
	return d, nil
}

// Close makes it an ordinary directory again, for who opens files from now on.
func (d *Disk) Close() { d.unmount() }

// Dir is the directory, for Options.Dir.
func (d *Disk) Dir() string { return d.dir }

// Fail makes the next n matching operations (n < 0: all) fail with err, without doing anything. nil: an I/O error (EIO).
func (d *Disk) Fail(m DiskMatch, n int, err error) {
	if err == nil {
		err = syscall.EIO
	}
	d.add(&diskRule{match: m, left: n, err: err})
}

// Tear makes the next n matching writes fail with an I/O error after some of their sectors of 512 bytes were written.
func (d *Disk) Tear(m DiskMatch, n int) {
	d.add(&diskRule{match: m, left: n, err: syscall.EIO, torn: true})
}

// Lie answers the next n matching fsyncs (FileSync, DirSync) and does nothing, as a disk with a volatile cache does: what they were to make durable is lost with the
// power.
func (d *Disk) Lie(m DiskMatch, n int) { d.add(&diskRule{match: m, left: n, lie: true}) }

func (d *Disk) add(r *diskRule) {
	r.skip = r.match.Skip
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rules = append(d.rules, r)
}

// Room lets files grow by that many bytes in all; then writes fail as on a full disk. What is removed makes room. < 0: any number.
func (d *Disk) Room(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room = bytes
}

// Cut takes the power away after that many more changes: none is made from then on, and each fails with an I/O error. Reads go on, so that who has files open can
// let go of them.
func (d *Disk) Cut(after int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = d.ops + after
}

// Changes is the number of changes so far, those that failed included: creations, writes, fsyncs and the like, no reads.
func (d *Disk) Changes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops
}

// Heal takes back all rules, and Room. Cut stays.
func (d *Disk) Heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rules, d.room = nil, -1
}

// Restart is what follows a Cut when only the process has died: every change up to there is in the files, synced or not.
func (d *Disk) Restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = -1
}

// PowerLoss makes the directory what may be on the disk after a power cut, as the seed says: of what was not synced, each sector that was written, each truncation, and each
// creation, renaming and removal in a directory that was not synced since has happened or has not. The machine has another boot id from then on, and the disk works.
func (d *Disk) PowerLoss(seed uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boot++
	return d.lose(seed)
}

// Lose is PowerLoss without another boot id: a virtual machine's disk that lost writes under a running kernel, or was set back.
func (d *Disk) Lose(seed uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lose(seed)
}

func (d *Disk) lose(seed uint64) error {
	d.cut = -1
	after := d.files.after(rand.New(rand.NewPCG(seed, 0x6c6f7373)))
	if err := after.write(d.dir); err != nil {
		return err
	}
	d.files = after
	return nil
}

// diskHook is a Disk as package fsys wants it.
type diskHook struct{ d *Disk }

func (h diskHook) Boot() string {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return fmt.Sprintf("tonbotest:%s:%d", h.d.dir, h.d.boot)
}

// Do does op as the rules say.
func (h diskHook) Do(op fsys.Op, apply func(data []byte) error) error {
	d := h.d
	if op.Kind == fsys.Read {
		d.mu.Lock()
		r := d.rule(op)
		d.mu.Unlock()
		if r != nil {
			return failed(op, r.err)
		}
		return apply(nil)
	}
	d.mu.Lock()
	defer d.mu.Unlock() // one change after the other: the order is what a power cut takes apart
	n := d.ops
	d.ops++
	if d.cut >= 0 && n >= d.cut {
		return failed(op, syscall.EIO)
	}
	r := d.rule(op)
	switch {
	case r == nil:
	case r.lie:
		return nil
	case r.torn:
		return errors.Join(failed(op, r.err), d.tear(op, apply))
	default:
		return failed(op, r.err)
	}
	grows := d.files.growth(op)
	if d.room >= 0 && grows > d.room {
		return failed(op, noSpace)
	}
	// An fsync is not done: what is durable is ours to say, and it takes milliseconds.
	if op.Kind != fsys.Sync && op.Kind != fsys.SyncDir {
		if err := apply(op.Data); err != nil {
			return err
		}
	}
	if d.room >= 0 {
		d.room -= grows
	}
	return d.files.did(op)
}

// rule finds the rule for an operation. d.mu is held.
func (d *Disk) rule(op fsys.Op) *diskRule {
	for i, r := range d.rules {
		if !r.match.fits(op) || r.torn && op.Kind != fsys.Write || r.lie && op.Kind != fsys.Sync && op.Kind != fsys.SyncDir {
			continue
		}
		if r.skip > 0 {
			r.skip--
			continue
		}
		if r.left > 0 {
			if r.left--; r.left == 0 {
				d.rules = slices.Delete(d.rules, i, i+1)
			}
		}
		return r
	}
	return nil
}

// tear writes some of the sectors of a write: the others keep what they have. d.mu is held.
func (d *Disk) tear(op fsys.Op, apply func([]byte) error) error {
	data := slices.Clone(op.Data)
	now := d.files.content(op.Path)
	for from := 0; from < len(data); {
		to := min(len(data), from+int(sector-(op.Off+int64(from))%sector))
		if d.rng.IntN(2) == 0 {
			clear(data[from:to])
			if at := op.Off + int64(from); at < int64(len(now)) {
				copy(data[from:to], now[at:])
			}
		}
		from = to
	}
	op.Data = data
	if err := apply(data); err != nil {
		return err
	}
	return d.files.did(op)
}

// failed is the error of an operation, as the operating system gives it.
func failed(op fsys.Op, err error) error {
	return &fs.PathError{Op: string(op.Kind), Path: op.Path, Err: fmt.Errorf("%w: %w", ErrInjected, err)}
}

// removeAll empties a directory.
func removeAll(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}
