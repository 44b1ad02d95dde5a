//go:build unix

package disk

import (
	"errors"
	"fmt"
	"syscall"
)

// Files says which limit an error is about that says that no more files may be open. "": it is about something else.
func Files(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		var l syscall.Rlimit
		if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
			return "of this process"
		}
		return fmt.Sprintf("of this process: %d, of which the system allows %d (ulimit -n, LimitNOFILE of systemd)", l.Cur, l.Max)
	case errors.Is(err, syscall.ENFILE):
		return "of the whole system (fs.file-max)"
	}
	return ""
}
