package blockcache

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Options of New. Dir and Max are needed.
type Options struct {
	Dir    string        // made when it is first needed, for its owner alone (0700)
	Max    int64         // bytes of all files; it is exceeded by a sixteenth or so for a while
	Wait   time.Duration // how long to wait for another's fetch at most; default 10 s
	Logger *slog.Logger  // nil: nowhere
}

// Cache is such a directory. Safe for concurrent use, by several processes too. Close it.
type Cache struct {
	o Options

	quiet     atomic.Int64 // Unix nanoseconds until when nothing is written: it failed
	impatient atomic.Int64 // the same for waiting: somebody held a lock for too long
	evicting  atomic.Bool

	mu      sync.Mutex
	closed  bool
	workers sync.WaitGroup
}

const (
	defaultWait = 10 * time.Second
	pause       = time.Minute // of writing after a failed write, and of waiting after a wait in vain
	shareOf     = 16          // of Max: how much is written between two looks at the whole, on average
	fresh       = time.Minute // how old the note of the last use may become
	tempAge     = 10 * time.Minute
	tempSuffix  = ".tmp"
)

// New returns the cache in a directory. It touches no file.
func New(o Options) *Cache {
	if o.Wait <= 0 {
		o.Wait = defaultWait
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Cache{o: o}
}

// Close waits for what goes on in the background. The files stay.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.workers.Wait()
}

// name is the file of a content: by what identifies it, and its length and checksum where these are known.
func (c *Cache) name(scope [sha256.Size]byte, kind byte, number int64, length int, sum uint64) string {
	b := append(scope[:], kind)
	b = binary.BigEndian.AppendUint64(b, uint64(number))
	b = binary.BigEndian.AppendUint64(b, uint64(length))
	b = binary.BigEndian.AppendUint64(b, sum)
	h := sha256.Sum256(b)
	s := hex.EncodeToString(h[:16])
	return filepath.Join(c.o.Dir, s[:2], s[2:])
}

// read returns the content of a file, nil when there is none. It notes that it was used, if the last note of that is old.
func (c *Cache) read(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > c.o.Max/shareOf { // nobody writes a larger one
		return nil
	}
	b := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil
	}
	if now := time.Now(); now.Sub(fi.ModTime()).Abs() > fresh {
		os.Chtimes(path, now, now) // no matter if it fails: it looks older than it is
	}
	return b
}

// block returns the content of a file, if it has that length and checksum. One that has not is removed.
func (c *Cache) block(path string, length int, sum uint64) []byte {
	b := c.read(path)
	if b == nil {
		return nil
	}
	if len(b) != length || xxhash.Sum64(b) != sum {
		c.o.Logger.Debug("damaged file in the shared block cache: fetched again", "file", path)
		os.Remove(path)
		return nil
	}
	return b
}

// write makes a file, whole or not at all. It may fail: then it is missing.
func (c *Cache) write(path string, b []byte) {
	if int64(len(b)) > c.o.Max/shareOf || time.Now().UnixNano() < c.quiet.Load() {
		return
	}
	if err := c.writeFile(path, b); err != nil {
		c.quiet.Store(time.Now().Add(pause).UnixNano())
		c.o.Logger.Warn("shared block cache not written, and left alone for a minute", "event", "shared_cache_failed", "dir", c.o.Dir, "error", err)
		return
	}
	// Each byte has the same chance to be the one that makes somebody look: whoever writes, and however little each.
	if rand.Int64N(max(c.o.Max/shareOf, 1)) < int64(len(b)) {
		c.evictSoon()
	}
}

func (c *Cache) writeFile(path string, b []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "*"+tempSuffix)
	if os.IsNotExist(err) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		f, err = os.CreateTemp(dir, "*"+tempSuffix)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		if _, serr := os.Stat(path); serr == nil { // Windows does not rename over a file that somebody reads: it is there already
			return nil
		}
	}
	return err
}
