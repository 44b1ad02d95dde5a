//go:build freebsd || netbsd || openbsd || dragonfly

package cache

// bootID is unknown here: every open is taken for one after a reboot, which costs a check of every page and drops no acknowledged commit.
func bootID() string { return "" }

// sameBoot is never known here.
func sameBoot(string, string) bool { return false }

// fileIdentity is only asked when the boot is the same: never here.
func fileIdentity(string) (inode, changed uint64, err error) { return 0, 0, nil }
