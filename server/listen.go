package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"
)

// Listen listens on host:port, or on unix:///path: a socket that nobody listens on any more is replaced, and the new one has the mode given (0: 0600).
func Listen(address string, mode fs.FileMode) (net.Listener, error) {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok {
		return net.Listen("tcp", address)
	}
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("listen on %s: want unix:///absolute/path", address)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, fmt.Errorf("listen on %s: a file that is no socket is there", address)
		}
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			c.Close()
			return nil, fmt.Errorf("listen on %s: another process does", address)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if mode == 0 {
		mode = 0o600
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", address, err), l.Close())
	}
	return l, nil
}

// Loopback tells whether an address can be reached from this machine only: a unix socket, or a loopback one.
func Loopback(l net.Listener) bool {
	a, ok := l.Addr().(*net.TCPAddr)
	return !ok || a.IP.IsLoopback()
}
