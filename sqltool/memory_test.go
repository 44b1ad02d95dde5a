package sqltool_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/sqltool"
)

// hostileChild makes the test binary a process that runs the hostile statements, and tells of each how many KiB of memory the process took for it.
const hostileChild = "TONBO_TEST_HOSTILE"

const mostMemory = 64 << 10 // KiB that a call may take, with the default limits

func TestHostileCallsStayWithinTheirMemory(t *testing.T) {
	if runtime.GOOS != "linux" || raced {
		t.Skip("what a process takes is read from /proc, and the race detector takes more than the calls")
	}
	if os.Getenv(hostileChild) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestHostileCallsStayWithinTheirMemory$", "-test.v")
		cmd.Env = append(os.Environ(), hostileChild+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Count(string(out), "KiB") != len(hostile) {
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	db := hostileDatabase(t)
	for _, h := range hostile {
		tool := newTool(t, db, sqltool.Limits{Time: 40 * time.Millisecond})
		debug.FreeOSMemory()
		os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // VmHWM starts again: proc_pid_clear_refs(5)
		before := resident("VmRSS:")
		call(tool, h.sql)
		took := resident("VmHWM:") - before
		fmt.Printf("%s: %d KiB\n", h.name, took)
		if took > mostMemory {
			t.Errorf("%s took %d KiB", h.name, took)
		}
		if err := tool.Close(); err != nil {
			t.Error(err)
		}
	}
}
