//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal tells whether a stream is a terminal. A device like /dev/null is none.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), getTermios)
	return err == nil
}
