package cache_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// TestRegrownPagesThatNobodyWrote: a database of 10 shipped pages whose file was cut to 5 and whose WAL says 10 again, writing page 1 alone. Pages 6 to 10 are commits when
// it is known that the database was that small since; otherwise the file has lost them.
func TestRegrownPagesThatNobodyWrote(t *testing.T) {
	const size = 512
	content := func(c byte) []byte { return slices.Repeat([]byte{c}, size) }
	sum := func(p uint32, c byte) cache.PageSum {
		return cache.PageSum{Page: p, Sum: segment.PageSum(p, content(c))}
	}
	grow := frame{1, 10, content(2)}
	cases := []struct {
		name   string
		frames []frame
		do     func(d *cache.Dir) error
		sound  bool
		first  byte // content of page 1 in the file
	}{
		{"the WAL shows it", []frame{{1, 5, content(3)}, grow}, nil, true, 1},
		{"recorded by Shrunk", []frame{grow}, func(d *cache.Dir) error { return d.Shrunk(5) }, true, 1},
		{"recorded by Shrunk after a spill beyond", []frame{grow}, func(d *cache.Dir) error {
			return errors.Join(d.Spilled([]cache.PageSum{sum(7, 9)}), d.Shrunk(5))
		}, true, 1},
		{"not recorded", []frame{grow}, nil, false, 1},
		{"recorded, and shipped with 10 pages since", []frame{grow}, func(d *cache.Dir) error {
			if err := d.Shrunk(5); err != nil {
				return err
			}
			d.Captured(2)
			s := d.State()
			x := s.Checksum ^ s.Sums.At(1) ^ sum(1, 4).Sum
			return d.Shipped(2, 10, x, []cache.PageSum{sum(1, 4)})
		}, false, 4},
		{"shrunk and spilled since", []frame{grow}, func(d *cache.Dir) error {
			return errors.Join(d.Shrunk(5), d.Spilled([]cache.PageSum{sum(7, 9)}))
		}, false, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			d := open(t, root)
			var file []byte
			for range 10 {
				file = append(file, content(1)...)
			}
			sums := sumsOf(file, size)
			if err := d.Begin(cache.State{Name: dbOf, PageSize: size, Sums: pageset.SumsOf(sums), Checksum: xor(sums), Slot: 1}); err != nil {
				t.Fatal(err)
			}
			if c.do != nil {
				if err := c.do(d); err != nil {
					t.Fatal(err)
				}
			}
			d.Close()
			copy(file, content(c.first))
			if err := os.WriteFile(d.Path(), file[:5*size], 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(d.WALPath(), encodeWAL(size, binary.LittleEndian, c.frames...), 0o600); err != nil {
				t.Fatal(err)
			}
			_, rec := recoverDir(t, root)
			if sound := len(rec.Damaged) == 0; sound != c.sound {
				t.Fatalf("sound: got %v, want %v: %s", sound, c.sound, rec.Reason)
			}
			if c.sound && !slices.Equal(rec.Unshipped, []uint32{1, 6, 7, 8, 9, 10}) {
				t.Errorf("unshipped: %v", rec.Unshipped)
			}
		})
	}
}

// TestStateForgetsWhatWasSpilledBeforeAnEntry: also where something newer is spilled whenever an entry is stored, as on a slow remote.
func TestStateForgetsWhatWasSpilledBeforeAnEntry(t *testing.T) {
	root := t.TempDir()
	d := open(t, root)
	err := d.Begin(cache.State{Name: dbOf, PageSize: 512, Sums: pageset.SumsOf([]uint64{1}), Checksum: 1, Slot: 1})
	for slot := uint64(2); slot < 100 && err == nil; slot++ {
		d.Captured(slot)
		err = errors.Join(
			d.Spilled([]cache.PageSum{{Page: 1, Sum: slot + 1}}),
			d.Shipped(slot, 1, slot, []cache.PageSum{{Page: 1, Sum: slot}}),
		)
	}
	if err := errors.Join(err, d.SetBoot("b")); err != nil { // which writes it anew
		t.Fatal(err)
	}
	if n := fileSize(t, root+"/"+dbOf+"/state"); n > 1<<10 {
		t.Errorf("state of %d bytes", n)
	}
}

// TestPageTornByAKilledCheckpoint: the WAL has it whole, and Spilled said so.
func TestPageTornByAKilledCheckpoint(t *testing.T) {
	const size = 4096
	l := newLive(t, size)
	l.exec("UPDATE t SET v=randomblob(300) WHERE id=100")
	page := differing(l.shipped, sumsOf(l.image(), size))[0]
	l.spill()
	root := l.crash()
	cutHalf(t, root+"/"+dbOf+"/db", int64(page-1)*size, size)
	mustRecover(t, root, size, l.shipped)
}

// TestSpilledContentIsShippedOnce: what was spilled and shipped is not unshipped content any more, also when nobody calls Captured.
func TestSpilledContentIsShippedOnce(t *testing.T) {
	const size = 512
	a, b, c := slices.Repeat([]byte{1}, size), slices.Repeat([]byte{2}, size), slices.Repeat([]byte{3}, size)
	sum := func(p []byte) uint64 { return segment.PageSum(1, p) }
	root := t.TempDir()
	d := open(t, root)
	err := errors.Join(
		d.Begin(cache.State{Name: dbOf, PageSize: size, Sums: pageset.SumsOf([]uint64{sum(a)}), Checksum: sum(a)}),
		d.Spilled([]cache.PageSum{{Page: 1, Sum: sum(b)}}),
		d.Shipped(2, 1, sum(b), []cache.PageSum{{Page: 1, Sum: sum(b)}}),
		d.Shipped(3, 1, sum(c), []cache.PageSum{{Page: 1, Sum: sum(c)}}),
		os.WriteFile(d.Path(), b, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := d.Recover(context.Background(), nil)
	if err != nil || len(rec.Damaged) != 1 {
		t.Errorf("got %+v, %v", rec, err)
	}
}

// TestAppendAfterAFailedAppendWritesAllOfIt: the state on disk has no hole where the failed record should be.
func TestAppendAfterAFailedAppendWritesAllOfIt(t *testing.T) {
	full := false
	root := t.TempDir()
	d, err := cache.Open(root, dbOf, cache.Options{Fault: func(step string) error {
		if full && strings.HasSuffix(step, ":append") {
			return errFull
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Begin(cache.State{Name: dbOf, PageSize: 512, Sums: pageset.SumsOf([]uint64{1}), Checksum: 1, Slot: 1}); err != nil {
		t.Fatal(err)
	}
	full = true
	if err := d.Shipped(2, 1, 7, []cache.PageSum{{Page: 1, Sum: 7}}); !errors.Is(err, errFull) {
		t.Fatalf("got %v", err)
	}
	full = false
	if err := d.SetLost("x"); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if s := open(t, root).State(); s.Slot != 2 || s.Lost != "x" || s.Sums.At(1) != 7 {
		t.Errorf("got %+v", s)
	}
}

// TestChangeWithoutTheJournalIsWrittenLater: what could not be appended because the journal, given up by Rest, did not open again, is not left out by the next append.
func TestChangeWithoutTheJournalIsWrittenLater(t *testing.T) {
	root := t.TempDir()
	d := open(t, root)
	if err := d.Begin(cache.State{Name: dbOf, PageSize: 512, Sums: pageset.SumsOf([]uint64{1}), Checksum: 1, Slot: 1}); err != nil {
		t.Fatal(err)
	}
	d.Rest()
	path := filepath.Join(root, dbOf, "state")
	if err := os.Rename(path, path+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := d.Shipped(2, 1, 7, []cache.PageSum{{Page: 1, Sum: 7}}); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v", err)
	}
	if err := os.Rename(path+"-away", path); err != nil {
		t.Fatal(err)
	}
	if err := d.SetLost("x"); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if s := open(t, root).State(); s.Slot != 2 || s.Lost != "x" || s.Sums.At(1) != 7 {
		t.Errorf("got %+v", s)
	}
}

// TestWhatIsMissingCostsNothing: the state of a database of 10 GiB of which a few pages are here takes a few KiB on disk, and little memory: to begin it, to open it again, to ship, to
// find out that it is whole.
func TestWhatIsMissingCostsNothing(t *testing.T) {
	const count, most = 10 << 18, 8 << 20
	root := t.TempDir()
	known, sums := pageset.NewBits(count), pageset.NewSums(count)
	for p := uint32(1); p < count; p += count / 19 {
		known.Set(p)
		sums.Set(p, uint64(p)*77)
	}
	d := open(t, root)
	f, err := os.Create(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(count*4096), f.Close()); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = errors.Join(
		d.Begin(cache.State{Name: dbOf, PageSize: 4096, Sums: sums, Known: known, Checksum: 5, Slot: 1}),
		d.Shipped(2, count, 6, []cache.PageSum{{Page: 2, Sum: 8}, {Page: count, Sum: 9}}),
		d.CleanClose(), d.Close(),
	)
	if err != nil {
		t.Fatal(err)
	}
	d, rec := recoverDir(t, root)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > most {
		t.Errorf("allocated %d bytes in all, want at most %d", n, most)
	}
	if n := fileSize(t, root+"/"+dbOf+"/state"); n > 8<<10 {
		t.Errorf("state of %d bytes", n)
	}
	known.Set(2)
	known.Set(count)
	known.Set(segment.LockPage(4096))
	sums.Set(2, 8)
	sums.Set(count, 9)
	s := d.State()
	if !rec.Skipped || s.Slot != 2 || s.Checksum != 6 || s.Sums.Xor() != sums.Xor() || !slices.Equal(s.Known.Words(), known.Words()) || !slices.Equal(rec.Present.Words(), known.Words()) {
		t.Errorf("not what was recorded: slot %d, checksum %x, %d pages known", s.Slot, s.Checksum, s.Known.Count())
	}
}

// TestPartialStateIsReadBack: whichever way it is written, as runs of pages or as a bit for each.
func TestPartialStateIsReadBack(t *testing.T) {
	for _, step := range []uint32{1, 2, 3, 64, 65, 127, 128, 129, 1000, 5000} {
		root := t.TempDir()
		d := open(t, root)
		s := cache.State{Name: dbOf, PageSize: 4096, Sums: pageset.NewSums(5000), Known: pageset.NewBits(5000), Slot: 1}
		for p := uint32(2); p <= 5000; p += step {
			s.Known.Set(p)
			s.Sums.Set(p, uint64(p)*77)
		}
		if err := errors.Join(d.Begin(s), d.Close()); err != nil {
			t.Fatal(err)
		}
		got := open(t, root).State()
		s.Boot = got.Boot
		if !sameState(got, &s, "") || !slices.Equal(got.Known.Words(), s.Known.Words()) {
			t.Errorf("every %d pages: another state", step)
		}
	}
}
