//go:build unix

package disk_test

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/tonbo-go/tonbo/internal/disk"
)

func TestFull(t *testing.T) {
	for err, want := range map[error]bool{
		&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}: true,
		fmt.Errorf("spool: %w", syscall.EDQUOT):                    true,
		syscall.EFBIG:                                              true,
		syscall.EIO:                                                false,
		errors.New("no room"):                                      false,
	} {
		if got := disk.Full(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
	if disk.Full(nil) {
		t.Error("nil")
	}
}
