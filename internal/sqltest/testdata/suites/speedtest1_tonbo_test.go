package speedtest1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/internal/testenv"
	"github.com/ncruces/go-sqlite3/vfs/tests/observed"
)

// said keeps what SQLite's program prints.
type said struct {
	testing.TB
	lines []string
}

func (s *said) Logf(format string, args ...any) {
	for _, a := range args {
		if b, ok := a.([]byte); ok {
			s.lines = append(s.lines, string(b))
		}
	}
}

// Test_tonbo runs SQLite's speedtest1 to its end on the driver's own VFS and on tonbo's.
func Test_tonbo(t *testing.T) {
	took := map[string]time.Duration{}
	for _, vfs := range []string{"os", observed.Name} {
		path := filepath.Join(t.TempDir(), "test.db")
		done := func() {}
		if vfs != "os" {
			done = observed.New(t, path).Check
		}
		out := &said{TB: t}
		testenv.TB = out
		testenv.Exit = func(c int32) {
			if c != 0 {
				t.Fatalf("exit %d: %s", c, strings.Join(out.lines[max(0, len(out.lines)-5):], "\n"))
			}
		}
		wrp, err := createWrapper(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		size := os.Getenv("SPEEDTEST1_SIZE")
		if size == "" {
			size = "5"
		}
		args := []string{"speedtest1", "--size", size, "--journal", "wal", "--vfs", vfs, path}
		argv := wrp.New(int64(ptrlen * len(args)))
		for i, a := range args {
			wrp.Write32(argv+ptr_t(i)*ptrlen, uint32(wrp.NewString(a)))
		}
		start := time.Now()
		wrp.Xmain_speedtest1(int32(len(args)), int32(argv))
		took[vfs] = time.Since(start)
		wrp.Close()
		done()
		if n := len(out.lines); n < 50 || !strings.Contains(strings.Join(out.lines[n-5:], " "), "TOTAL") {
			t.Errorf("%s: it did not come to its end: %d lines", vfs, n)
		}
	}
	t.Logf("the driver's own VFS took %v, tonbo's, shipping beside, %v", took["os"], took[observed.Name])
}
