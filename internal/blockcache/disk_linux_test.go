package blockcache_test

import (
	"bytes"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/tonbo-go/tonbo/internal/blockcache"
)

func TestFullDiskIsLetAlone(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=700"); err != nil {
		t.Skipf("mounting a small file system needs privileges: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	var log bytes.Buffer
	c := newCache(t, blockcache.Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r := &remote{}
	read(t, c, r, 1, 0, 300)
	read(t, c, r, 1, 0, 300)
	if n := strings.Count(log.String(), "shared_cache_failed"); n != 1 || !strings.Contains(log.String(), "no space left") {
		t.Errorf("said %d times: %s", n, log.String())
	}
	if r.bytes.Load() >= 2*total(0, 300) || r.bytes.Load() <= total(0, 300) {
		t.Errorf("%d bytes fetched of %d, twice: what found room should be here, and the rest not", r.bytes.Load(), total(0, 300))
	}
	files, _ := filesIn(t, dir)
	for _, f := range files {
		if strings.HasSuffix(f, ".tmp") {
			t.Errorf("%s is left", f)
		}
	}
}
