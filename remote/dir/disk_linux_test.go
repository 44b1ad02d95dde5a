package dir_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tonbo-go/tonbo/remote"
)

func TestFullDiskIsAQuotaErrorAndLeavesNothing(t *testing.T) {
	d := t.TempDir()
	if err := syscall.Mount("tmpfs", d, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Skipf("needs a small file system of its own: mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, d)
	if _, err := s.Create(t.Context(), "a/k", make([]byte, 300<<10)); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the space of a refused object is free again
		_, err := s.Create(t.Context(), "a/large", make([]byte, 2<<20))
		if !errors.Is(err, remote.ErrQuota) || errors.Is(err, remote.ErrUnknown) {
			t.Fatalf("got %v, want ErrQuota", err)
		}
		if _, err := s.Get(t.Context(), "a/large", remote.GetOptions{}); !errors.Is(err, remote.ErrNotFound) {
			t.Fatalf("Get: %v", err)
		}
	}
	if names := temporaries(t, d); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
	if _, err := s.Create(t.Context(), "a/small", make([]byte, 300<<10)); err != nil {
		t.Error(err)
	}
}

func TestMissingRightsAreDenied(t *testing.T) {
	// Not in t.TempDir, whose parents another user may not enter.
	d, err := os.MkdirTemp("", "tonbo-dir-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(d) })
	s := open(t, d)
	if _, err := s.Create(t.Context(), "a/k", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"", "a", ".tonbo", ".tonbo/tmp"} {
		if err := os.Chmod(filepath.Join(d, sub), 0o555); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		os.Chmod(filepath.Join(d, "a"), 0o755)
		os.Chmod(d, 0o755)
		os.Chmod(filepath.Join(d, ".tonbo/tmp"), 0o755)
	})
	c := prepare(t, "denied", d)
	if os.Getuid() == 0 { // root may do everything
		exe := filepath.Join(d, "test")
		copyFile(t, c.cmd.Path, exe)
		c.cmd.Path = exe
		c.cmd.Dir = d
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	c.run()
	c.begin()
	c.end()
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}
