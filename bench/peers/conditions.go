package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// conditions are what a figure is worth nothing without.
type conditions struct {
	Time       time.Time `json:"time"`
	CPU        string    `json:"cpu"`
	Cores      int       `json:"cores"`
	Go         string    `json:"go"`
	Platform   string    `json:"platform"`
	Server     string    `json:"server"`
	LoadBefore float64   `json:"load_before"` // of the last minute; -1: the system does not tell
	LoadAfter  float64   `json:"load_after"`
}

func (c conditions) String() string {
	return fmt.Sprintf("%s, %d cores, %s, %s; %s", c.CPU, c.Cores, c.Go, c.Platform, c.Server)
}

func conditionsNow() conditions {
	return conditions{Time: time.Now().UTC().Truncate(time.Second), CPU: cpuName(), Cores: runtime.NumCPU(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Server: "versitygw on loopback, no fsync", LoadBefore: load()}
}

func cpuName() string { return field("/proc/cpuinfo", "model name", runtime.GOARCH) }

// field is what a file of the kind "name : value" says.
func field(path, name, otherwise string) string {
	f, err := os.Open(path)
	if err != nil {
		return otherwise
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return otherwise
}

func load() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(b), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return v
}

// memory is this process's resident set, now and at its peak since the last resetPeak, in bytes; 0 where the system does not tell.
func memory() (now, peak int64) { return status("VmRSS"), status("VmHWM") }

func status(name string) int64 {
	v, _, _ := strings.Cut(field("/proc/self/status", name, "0"), " ")
	n, _ := strconv.ParseInt(v, 10, 64)
	return n << 10
}

// resetPeak gives back what can be given back and begins a new peak. It returns the resident set.
func resetPeak() int64 {
	runtime.GC()
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // where it cannot be, the peak is that of the process
	now, _ := memory()
	return now
}

// descriptors is how many files this process has open; 0 where the system does not tell.
func descriptors() int {
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(e)
}

// times are samples of one figure.
type times []time.Duration

// at is a percentile, p from 0 to 1.
func (t times) at(p float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(t))
	return s[min(len(s)-1, int(p*float64(len(s))))]
}

func (t times) p50() time.Duration { return t.at(.5) }

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
