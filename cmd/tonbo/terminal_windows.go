package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// isTerminal tells whether a stream is a console.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	var mode uint32
	return windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) == nil
}
