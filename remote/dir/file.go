package dir

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

const (
	magic      = "tonbobj1"
	headerSize = 32
	staleAfter = time.Hour // age at which a temporary file is nobody's any more
	chunk      = 4 << 20   // bytes read or written between two looks at the context
)

var errDamaged = errors.New("it is no whole object of this store: cut off, or another program's file")

// noETag is a damaged object's entity tag in listings: no object has it.
const noETag = "damaged"

// open opens an object and reads its header. The file is immutable: a swap puts another one in its place. With errDamaged come the size and the time.
func open(file string) (*os.File, remote.Info, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, remote.Info{}, err
	}
	info, err := readHeader(f)
	if err != nil {
		f.Close()
		return nil, info, err
	}
	return f, info, nil
}

func readHeader(f *os.File) (remote.Info, error) {
	st, err := f.Stat()
	if err != nil {
		return remote.Info{}, err
	}
	if st.IsDir() {
		return remote.Info{}, fs.ErrNotExist
	}
	size := st.Size() - headerSize
	var h [headerSize]byte
	if _, err := f.ReadAt(h[:], 0); err != nil && err != io.EOF {
		return remote.Info{}, err
	}
	if string(h[:8]) != magic || size < 0 || binary.LittleEndian.Uint64(h[24:]) != uint64(size) {
		return remote.Info{Size: max(0, size), ETag: noETag, Time: st.ModTime()}, fmt.Errorf("%s: %w", f.Name(), errDamaged)
	}
	return remote.Info{Size: size, ETag: hex.EncodeToString(h[8:24]), Time: st.ModTime()}, nil
}

// writeTemp writes an object to a temporary file and flushes it.
func (s *Store) writeTemp(ctx context.Context, body []byte) (temp, etag string, err error) {
	s.removeStale()
	temp = filepath.Join(s.root, hidden, "tmp", rand.Text())
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.makeHidden(); err == nil {
			f, err = os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		}
	}
	if err != nil {
		return "", "", err
	}
	etag, err = writeObject(ctx, f, body)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(temp) // what cannot be removed now is removed when it is stale
		return "", "", err
	}
	return temp, etag, nil
}

func writeObject(ctx context.Context, f *os.File, body []byte) (etag string, err error) {
	var h [headerSize]byte
	copy(h[:], magic)
	rand.Read(h[8:24])
	binary.LittleEndian.PutUint64(h[24:], uint64(len(body)))
	if _, err := f.Write(h[:]); err != nil {
		return "", err
	}
	for len(body) > 0 {
		n := min(len(body), chunk)
		if _, err := f.Write(body[:n]); err != nil {
			return "", err
		}
		body = body[n:]
		if err := ctx.Err(); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h[8:24]), nil
}

// makeHidden makes the folder for the lock and temporary files. It is not made durable: it can be made again.
func (s *Store) makeHidden() error {
	for _, d := range []string{hidden, filepath.Join(hidden, "tmp")} {
		if err := os.Mkdir(filepath.Join(s.root, d), 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// removeStale removes the temporary files that dead writers left, at most once an hour. Its failures matter to nobody: the next
// one tries again.
func (s *Store) removeStale() {
	now := time.Now()
	s.mu.Lock()
	due := now.Sub(s.cleaned) >= staleAfter
	if due {
		s.cleaned = now
	}
	s.mu.Unlock()
	if !due {
		return
	}
	tmp := filepath.Join(s.root, hidden, "tmp")
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > staleAfter {
			os.Remove(filepath.Join(tmp, e.Name()))
		}
	}
}

// makeFolder makes a key's folder and sees to it that it outlives a power failure. Another process may have made it and not
// flushed it yet, so the folders above are flushed once in each process, whoever made them.
func (s *Store) makeFolder(folder string) error {
	s.mu.Lock()
	done := s.durable[folder]
	s.mu.Unlock()
	if done || folder == s.root {
		return nil
	}
	above := filepath.Dir(folder)
	if err := s.makeFolder(above); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := syncFolder(above); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.durable) >= maxDurable {
		clear(s.durable)
	}
	s.durable[folder] = true
	return nil
}

func (s *Store) forgetFolders() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.durable)
}

// flush makes a folder's names durable. A folder that could not be flushed is remembered: nothing in it counts as stored, for
// this process, until that has succeeded.
func (s *Store) flush(folder string) error {
	err := syncFolder(folder)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.unflushed[folder] = true
	} else {
		delete(s.unflushed, folder)
	}
	return err
}

// settle flushes a folder if an earlier flush of it failed.
func (s *Store) settle(folder string) error {
	s.mu.Lock()
	pending := s.unflushed[folder]
	s.mu.Unlock()
	if !pending {
		return nil
	}
	return s.flush(folder)
}
