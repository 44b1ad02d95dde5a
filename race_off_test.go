//go:build !race

package tonbo_test

const raceEnabled = false
