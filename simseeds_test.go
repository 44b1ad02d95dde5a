package tonbo_test

import (
	"os"
	"strconv"
)

// simSeeds is how many seeds a simulation runs: n, a quarter under the race detector, or what $TONBO_SIM_SEEDS says.
func simSeeds(n uint64) uint64 {
	if more, err := strconv.ParseUint(os.Getenv("TONBO_SIM_SEEDS"), 10, 64); err == nil {
		return more
	}
	if raceEnabled {
		return max(1, n/4)
	}
	return n
}
