package cache

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// bootID names this boot of the kernel; "" means unknown and is taken for a reboot.
func bootID() string {
	s, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return s
}

// sameBoot tells whether two boot ids are of one boot.
func sameBoot(a, b string) bool { return a != "" && a == b }

// fileIdentity returns what changes when a file is replaced (inode) or touched (change time in nanoseconds).
func fileIdentity(path string) (inode, changed uint64, err error) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, 0, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, nil
	}
	return st.Ino, uint64(st.Ctimespec.Nano()), nil
}
