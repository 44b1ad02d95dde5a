//go:build !race

package sqltool_test

const raced = false // by the race detector, whose own memory counts as the process's
