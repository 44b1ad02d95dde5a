package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

const maxDurable = 16384 // folders remembered as flushed

// Store is a [remote.Store] in a directory. It holds no resources between calls, so there is nothing to close.
type Store struct {
	root string // absolute

	swapping chan struct{} // capacity 1; held around the lock file within this process

	mu        sync.Mutex
	durable   map[string]bool // folders whose own name is known to be durable
	unflushed map[string]bool // folders whose last flush failed
	cleaned   time.Time       // when temporary files were last looked through
}

var _ remote.Store = (*Store)(nil)

// Open returns the store in a directory, which it makes, with the directories above it, when it is absent. Errors:
// [remote.ErrDenied], [remote.ErrQuota], [remote.ErrNoBucket] when something else is in its place.
func Open(path string) (*Store, error) {
	s, err := newStore(path)
	if err != nil {
		return nil, err
	}
	if err := makeRoot(s.root); err != nil {
		kind := kindOf(err)
		if kind == remote.ErrNotFound {
			kind = remote.ErrNoBucket
		}
		return nil, s.fail("open", "", kind, err)
	}
	return s.checked()
}

// OpenExisting is [Open] that makes nothing: an absent directory is [remote.ErrNoBucket]. For readers.
func OpenExisting(path string) (*Store, error) {
	s, err := newStore(path)
	if err != nil {
		return nil, err
	}
	return s.checked()
}

func (s *Store) checked() (*Store, error) {
	if err := s.checkRoot("open", ""); err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(path string) (*Store, error) {
	if path == "" {
		return nil, fmt.Errorf("open directory store: %w: no path given", remote.ErrNoBucket)
	}
	root, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open directory store %s: %w: %w", path, remote.ErrNoBucket, err)
	}
	return &Store{root: root, swapping: make(chan struct{}, 1), durable: make(map[string]bool), unflushed: make(map[string]bool)}, nil
}

// makeRoot makes the directory, private to this user, and makes it durable.
func makeRoot(root string) error {
	err := os.Mkdir(root, 0o700)
	above := filepath.Dir(root)
	if errors.Is(err, fs.ErrExist) { // perhaps made by another process just now, and not flushed yet
		if err := syncFolder(above); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) && above != root {
		if err = makeRoot(above); err == nil {
			err = os.Mkdir(root, 0o700)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(above)
}

// String returns "file://" and the directory's path.
func (s *Store) String() string {
	p := filepath.ToSlash(s.root)
	if p[0] != '/' {
		p = "/" + p // C:/x
	}
	return "file://" + p
}

// Create implements [remote.Store].
func (s *Store) Create(ctx context.Context, key string, body []byte) (string, error) {
	const op = "create"
	if err := s.begin(ctx, op, key, remote.CheckKey); err != nil {
		return "", err
	}
	remote.Record(ctx, remote.OpPut, int64(len(body)), 0)
	file := filepath.Join(s.root, path(key))
	folder := filepath.Dir(file)

	// 1. Taken already: no need to write. (The publication decides, not this look.)
	if st, err := os.Lstat(file); err == nil {
		return "", s.taken(key, folder, st)
	}
	// 2. The folder, durable.
	if err := s.makeFolder(folder); err != nil {
		return "", s.error(op, key, err)
	}
	// 3. The object under a temporary name, durable.
	temp, etag, err := s.writeTemp(ctx, body)
	if err != nil {
		return "", s.error(op, key, err)
	}
	defer os.Remove(temp) // gone already where publish renames
	if err := ctx.Err(); err != nil {
		return "", s.error(op, key, err)
	}
	// 4. The name, if nobody has it.
	err = publish(temp, file)
	if errors.Is(err, fs.ErrNotExist) { // somebody removed the folder
		s.forgetFolders()
		if err = s.makeFolder(folder); err == nil {
			err = publish(temp, file)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		st, err := os.Lstat(file)
		if err != nil {
			return "", s.fail(op, key, remote.ErrUnknown, fmt.Errorf("taken and gone again: %w", err))
		}
		return "", s.taken(key, folder, st)
	}
	if err != nil {
		return "", s.error(op, key, err)
	}
	// 5. The name, durable. It can be seen by now, so whatever fails here leaves the outcome unknown.
	if err := s.flush(folder); err != nil {
		return "", s.fail(op, key, remote.ErrUnknown, fmt.Errorf("flush %s: %w", folder, err))
	}
	return etag, nil
}

// taken answers a create whose key is taken. The caller may find its own object there, from a try that died before step 5, and
// report it as stored: so that must be durable first.
func (s *Store) taken(key, folder string, st fs.FileInfo) error {
	if st.IsDir() {
		return s.fail("create", key, remote.ErrUnfit, fmt.Errorf("%w: it is the folder of other keys", remote.ErrBadKey))
	}
	if err := s.flush(folder); err != nil {
		return s.fail("create", key, remote.ErrUnknown, fmt.Errorf("flush %s: %w", folder, err))
	}
	return s.fail("create", key, remote.ErrExists, nil)
}

// Get implements [remote.Store].
func (s *Store) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	const op = "get"
	if err := s.begin(ctx, op, key, remote.CheckKey); err != nil {
		return remote.Object{}, err
	}
	obj, err := s.get(ctx, key, o)
	remote.Record(ctx, remote.OpGet, 0, int64(len(obj.Body)))
	return obj, err
}

func (s *Store) get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	const op = "get"
	file := filepath.Join(s.root, path(key))
	if err := s.settle(filepath.Dir(file)); err != nil {
		return remote.Object{}, s.fail(op, key, remote.ErrUnknown, err)
	}
	f, info, err := open(file)
	if err != nil {
		return remote.Object{}, s.error(op, key, err)
	}
	defer f.Close()
	info.Key = key
	if o.IfMatch != "" && o.IfMatch != info.ETag {
		return remote.Object{}, s.fail(op, key, remote.ErrChanged, nil)
	}
	offset, n := o.Span(info.Size)
	body := make([]byte, n)
	for done := int64(0); done < n; {
		part := body[done:min(done+chunk, n)]
		if _, err := f.ReadAt(part, headerSize+offset+done); err != nil {
			if err == io.EOF {
				err = fmt.Errorf("%s: %w", file, errDamaged)
			}
			return remote.Object{}, s.error(op, key, err)
		}
		done += int64(len(part))
		if err := ctx.Err(); err != nil {
			return remote.Object{}, s.error(op, key, err)
		}
	}
	return remote.Object{Info: info, Body: body}, nil
}

// Swap implements [remote.Store]. It waits for the lock until ctx ends.
func (s *Store) Swap(ctx context.Context, key, etag string, body []byte) (string, error) {
	const op = "swap"
	if err := s.begin(ctx, op, key, remote.CheckKey); err != nil {
		return "", err
	}
	remote.Record(ctx, remote.OpPut, int64(len(body)), 0)
	file := filepath.Join(s.root, path(key))

	// 1. The new object under a temporary name, durable.
	temp, newETag, err := s.writeTemp(ctx, body)
	if err != nil {
		return "", s.error(op, key, err)
	}
	defer os.Remove(temp)
	// 2. From here on nobody else swaps or deletes, so a key that is there stays what it is.
	unlock, err := s.lock(ctx)
	if err != nil {
		return "", s.error(op, key, err)
	}
	defer unlock()
	// 3. Still the same object?
	f, info, err := open(file)
	if err != nil && isAbsent(err) {
		if err := s.checkRoot(op, key); err != nil {
			return "", err
		}
		return "", s.fail(op, key, remote.ErrNotFound, err)
	}
	if err != nil {
		return "", s.error(op, key, err)
	}
	f.Close()
	if info.ETag != etag {
		return "", s.fail(op, key, remote.ErrChanged, nil)
	}
	// 4. Put the new one in its place, durably.
	if err := whileBusy(ctx, func() error { return replace(temp, file) }); err != nil {
		return "", s.error(op, key, err)
	}
	if err := s.flush(filepath.Dir(file)); err != nil {
		return "", s.fail(op, key, remote.ErrUnknown, fmt.Errorf("flush %s: %w", filepath.Dir(file), err))
	}
	return newETag, nil
}

// Delete implements [remote.Store]. It waits for the lock until ctx ends, and is durable when it returns.
func (s *Store) Delete(ctx context.Context, key string) error {
	const op = "delete"
	if err := s.begin(ctx, op, key, remote.CheckKey); err != nil {
		return err
	}
	remote.Record(ctx, remote.OpDelete, 0, 0)
	file := filepath.Join(s.root, path(key))
	if st, err := os.Lstat(file); err != nil || st.IsDir() {
		if err == nil {
			err = fs.ErrNotExist
		}
		return s.absentIsFine(s.error(op, key, err))
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return s.error(op, key, err)
	}
	defer unlock()
	if err := whileBusy(ctx, func() error { return os.Remove(file) }); err != nil {
		return s.absentIsFine(s.error(op, key, err))
	}
	if err := s.flush(filepath.Dir(file)); err != nil {
		return s.fail(op, key, remote.ErrUnknown, fmt.Errorf("flush %s: %w", filepath.Dir(file), err))
	}
	return nil
}

func (s *Store) absentIsFine(err error) error {
	if errors.Is(err, remote.ErrNotFound) {
		return nil
	}
	return err
}

// whileBusy repeats f for about two seconds while another program has the file open in a way that forbids it (Windows).
func whileBusy(ctx context.Context, f func() error) error {
	pause := time.Millisecond
	for try := 1; ; try++ {
		err := f()
		if err == nil || !isBusy(err) || try == 45 {
			return err
		}
		pause = min(2*pause, 50*time.Millisecond)
		if e := wait(ctx, pause); e != nil {
			return fmt.Errorf("%w: %w", e, err)
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
