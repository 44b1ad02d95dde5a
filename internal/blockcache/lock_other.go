//go:build !linux && !darwin && !windows

package blockcache

import "os"

// lockRange lets everybody go on: here there are no locks of an open file on a part of it, and two that want the same block at the same time both fetch it.
func lockRange(*os.File, int64, int64) (bool, error) { return true, nil }
