//go:build !linux

package main

import "os/exec"

// withoutNetwork is nil: there are no network namespaces here.
var withoutNetwork func(*exec.Cmd)
