package cache

import (
	"os"
	"strings"
	"syscall"
)

// bootID names this boot of the kernel; "" means unknown and is taken for a reboot.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
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
	return st.Ino, uint64(st.Ctim.Nano()), nil
}
