package cache_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// frame is one frame of a WAL; commit is the size of the database in pages, 0 when the transaction goes on.
type frame struct {
	page, commit uint32
	content      []byte
}

// encodeWAL writes a WAL as https://sqlite.org/fileformat2.html#walformat says.
func encodeWAL(pageSize int, order binary.ByteOrder, frames ...frame) []byte {
	var s0, s1 uint32
	add := func(b []byte) {
		for ; len(b) > 0; b = b[8:] {
			s0 += order.Uint32(b) + s1
			s1 += order.Uint32(b[4:]) + s0
		}
	}
	be := binary.BigEndian
	magic := uint32(0x377f0682)
	if order == binary.ByteOrder(binary.BigEndian) {
		magic++
	}
	var b []byte
	for _, v := range []uint32{magic, 3007000, uint32(pageSize), 0, 0xabc, 0xdef} {
		b = be.AppendUint32(b, v)
	}
	add(b)
	b = be.AppendUint32(be.AppendUint32(b, s0), s1)
	for _, f := range frames {
		h := be.AppendUint32(be.AppendUint32(nil, f.page), f.commit)
		add(h)
		add(f.content)
		for _, v := range []uint32{0xabc, 0xdef, s0, s1} {
			h = be.AppendUint32(h, v)
		}
		b = append(append(b, h...), f.content...)
	}
	return b
}

// TestLargeDatabaseIsStreamed: a database beyond 1 GiB, with the lock page in it and commits on both sides of that, is recovered without holding it: what is allocated in
// all stays under 32 bytes a page and 8 MiB.
func TestLargeDatabaseIsStreamed(t *testing.T) {
	if testing.Short() {
		t.Skip("reads a sparse file of 1 GiB")
	}
	for _, size := range []int{512, 4096, 65536} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			lock := segment.LockPage(size)
			count := lock + 2
			sums := make([]uint64, count)
			zero := make([]byte, size)
			for i := range sums {
				if p := uint32(i + 1); p != lock {
					sums[i] = segment.PageSum(p, zero)
				}
			}
			root := t.TempDir()
			d := open(t, root)
			f, err := os.Create(d.Path())
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Truncate(int64(count) * int64(size)); err != nil {
				t.Fatal(err)
			}
			f.Close()
			if err := d.Begin(cache.State{Name: dbOf, PageSize: uint32(size), Sums: pageset.SumsOf(sums), Checksum: xor(sums)}); err != nil {
				t.Fatal(err)
			}
			page := func(c byte) []byte { return slices.Repeat([]byte{c}, size) }
			wal := encodeWAL(size, binary.BigEndian,
				frame{1, 0, page(1)}, frame{lock - 1, 0, page(2)}, frame{lock + 1, 0, page(3)}, frame{lock + 3, lock + 3, page(4)},
				frame{lock + 1, 0, page(5)}, frame{2, lock + 3, page(6)},
				frame{3, 0, page(7)})
			if err := os.WriteFile(d.WALPath(), wal, 0o600); err != nil {
				t.Fatal(err)
			}
			d.Close()

			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d, rec := recoverDir(t, root)
			runtime.ReadMemStats(&after)
			if len(rec.Damaged) > 0 {
				t.Fatalf("damaged: %s", rec.Reason)
			}
			want := []uint32{1, 2, lock - 1, lock + 1, lock + 3}
			if !slices.Equal(rec.Unshipped, want) || rec.PageCount != lock+3 || rec.Checksum != rec.Sums.Xor() || rec.Sums.At(lock) != 0 {
				t.Errorf("unshipped %v, want %v; %d pages", rec.Unshipped, want, rec.PageCount)
			}
			if n, limit := after.TotalAlloc-before.TotalAlloc, 40*uint64(count)+8<<20; n > limit {
				t.Errorf("allocated %d bytes in all, want at most %d", n, limit)
			}
			db, err := os.Open(d.Path())
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			got := make([]byte, size)
			for p, c := range map[uint32]byte{1: 1, 2: 6, 3: 0, lock - 1: 2, lock: 0, lock + 1: 5, lock + 2: 0, lock + 3: 4} {
				if _, err := db.ReadAt(got, int64(p-1)*int64(size)); err != nil || got[0] != c || got[size-1] != c {
					t.Errorf("page %d: got %d, want %d (%v)", p, got[0], c, err)
				}
			}
			if n := fileSize(t, d.Path()); n != int64(lock+3)*int64(size) {
				t.Errorf("file of %d bytes", n)
			}
		})
	}
}

// TestEmptyDatabase: nothing shipped but the database's existence.
func TestEmptyDatabase(t *testing.T) {
	root := t.TempDir()
	d := open(t, root)
	if err := os.WriteFile(d.Path(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Begin(cache.State{Name: dbOf, PageSize: 4096}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if _, rec := recoverDir(t, root); len(rec.Damaged) > 0 || rec.PageCount != 0 || len(rec.Unshipped) > 0 {
		t.Errorf("got %+v", rec)
	}
}

func BenchmarkRecover(b *testing.B) {
	const size, count = 4096, 16 << 10
	root := b.TempDir()
	d := open(b, root)
	sums := make([]uint64, count)
	zero := make([]byte, size)
	for i := range sums {
		sums[i] = segment.PageSum(uint32(i+1), zero)
	}
	if err := os.WriteFile(filepath.Join(root, dbOf, "db"), make([]byte, count*size), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := d.Begin(cache.State{Name: dbOf, PageSize: size, Sums: pageset.SumsOf(sums), Checksum: xor(sums)}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(count * size)
	for b.Loop() {
		if rec, err := d.Recover(b.Context(), nil); err != nil || len(rec.Damaged) > 0 {
			b.Fatal(err)
		}
	}
}

func BenchmarkShipped(b *testing.B) {
	root := b.TempDir()
	d := open(b, root)
	sums := make([]uint64, 25_000)
	if err := d.Begin(cache.State{Name: dbOf, PageSize: 4096, Sums: pageset.SumsOf(sums)}); err != nil {
		b.Fatal(err)
	}
	for i := uint64(1); b.Loop(); i++ {
		if err := d.Shipped(i, 25_000, i, []cache.PageSum{{Page: 7, Sum: i}}); err != nil {
			b.Fatal(err)
		}
	}
}
