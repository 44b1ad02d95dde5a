//go:build race

package sqltool_test

const raced = true
