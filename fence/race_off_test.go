//go:build !race

package fence_test

const race = false
