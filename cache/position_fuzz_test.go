package cache_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/tonbo-go/tonbo/cache"
)

// FuzzPosition: a shared index of any content says where a write-ahead log with whole frames ends, or nothing.
func FuzzPosition(f *testing.F) {
	h := make([]byte, 48)
	binary.NativeEndian.PutUint32(h, 3007000)
	h[12] = 1
	binary.NativeEndian.PutUint16(h[14:], 4096)
	binary.NativeEndian.PutUint32(h[16:], 3)
	f.Add(bytes.Repeat(h, 2))
	binary.NativeEndian.PutUint32(h[16:], 1<<32-1)
	f.Add(bytes.Repeat(h, 2))
	f.Add(h)
	path := filepath.Join(f.TempDir(), "db-shm")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if end := cache.Position(path); end != 0 && (end < 32+24 || len(b) < 96) {
			t.Errorf("end %d of %d bytes", end, len(b))
		}
	})
}
