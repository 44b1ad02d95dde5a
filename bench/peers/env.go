package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tonbo-go/tonbo/internal/s3server"
)

// env is what workloads are run in: a server, a temporary directory, the settings, and what has been measured.
type env struct {
	settings
	tmp    string
	server *s3server.Server
	report *report
	began  time.Time

	files      sync.Mutex          // held while a source file is made
	prepared   sync.Mutex          // held while a database is brought into the remote
	brought    map[int64]*imported // by size
	replicated map[int64]string    // paths of litestream's replicas, by size
	seq        atomic.Int64
	name       string // of the workload under way
	cond       conditions
}

// settings come from the command line.
type settings struct {
	rounds int
	small  bool // sizes that take seconds and say nothing
	large  bool // 10 GB as well
	out    string
	peers  bool
	line   *regexp.Regexp // of a line's String
}

// newEnv starts the server.
func newEnv(ctx context.Context, s settings) (*env, error) {
	tmp, err := os.MkdirTemp("", "tonbo-bench-")
	if err != nil {
		return nil, err
	}
	srv, err := s3server.Run(ctx)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(tmp))
	}
	for _, kv := range [][2]string{{"AWS_ACCESS_KEY_ID", srv.AccessKey}, {"AWS_SECRET_ACCESS_KEY", srv.SecretKey}, {"AWS_REGION", srv.Region}, {"AWS_EC2_METADATA_DISABLED", "true"}} {
		if err := os.Setenv(kv[0], kv[1]); err != nil {
			srv.Stop()
			return nil, errors.Join(err, os.RemoveAll(tmp))
		}
	}
	// The server is spoken to in the clear. litestream does not start with a bundle of authorities in the environment ("unable to add custom RootCAs HTTPClient").
	if err := os.Unsetenv("AWS_CA_BUNDLE"); err != nil {
		srv.Stop()
		return nil, errors.Join(err, os.RemoveAll(tmp))
	}
	return &env{settings: s, tmp: tmp, server: srv, report: &report{}, began: time.Now(), brought: map[int64]*imported{}, replicated: map[int64]string{}}, nil
}

func (e *env) close() error {
	e.server.Stop()
	return os.RemoveAll(e.tmp)
}

func (e *env) logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1f s  %s: %s\n", time.Since(e.began).Seconds(), e.name, fmt.Sprintf(format, args...))
}

// through starts a proxy for a line. The caller closes it.
func (e *env) through(l line) (*apart, error) {
	return startApart(e.server.Endpoint, l, func(err error) {
		e.report.Failed = append(e.report.Failed, fmt.Sprintf("%s: the proxy: %v", e.name, err))
	})
}

// lines are those of a workload that -line asks for.
func (e *env) lines(all ...line) []line {
	var r []line
	for _, l := range all {
		if e.line.MatchString(l.String()) {
			r = append(r, l)
		}
	}
	return r
}

// fresh returns a name that has not been used: of a database, a prefix, a directory.
func (e *env) fresh(what string) string { return fmt.Sprintf("%s-%d", what, e.seq.Add(1)) }

// dir makes a fresh directory. discard removes it.
func (e *env) dir(what string) (string, error) {
	d := filepath.Join(e.tmp, e.fresh(what))
	return d, os.MkdirAll(d, 0o700)
}

// discard removes a directory of a round; what it leaves is removed with the rest.
func (e *env) discard(dir string) { _ = os.RemoveAll(dir) }

// pick returns full, or small with -small.
func pick[T any](e *env, full, small T) T {
	if e.small {
		return small
	}
	return full
}

// add reports a row.
func (e *env) add(c, system string, rounds int, values ...value) {
	cond := e.cond
	cond.LoadAfter = load()
	e.report.Rows = append(e.report.Rows, row{Workload: e.name, Case: c, System: system, Rounds: rounds, Values: values, Conditions: cond})
	e.cond.LoadBefore = cond.LoadAfter
}

// atMost and atLeast report whether a figure reaches what it should.
func (e *env) atMost(what string, got, want float64) {
	e.report.Targets = append(e.report.Targets, target{e.name, what, got, "<=", want, got <= want})
}

func (e *env) atLeast(what string, got, want float64) {
	e.report.Targets = append(e.report.Targets, target{e.name, what, got, ">=", want, got >= want})
}

// spent are the values of rounds that took so long and moved so much.
func spent(t times, tr traffic) []value {
	return []value{{"p50 ms", ms(t.p50())}, {"p99 ms", ms(t.at(.99))}, {"requests", float64(tr.requests)}, {"serial", float64(tr.serial)},
		{"kB up", float64(tr.bytesUp) / 1e3}, {"kB down", float64(tr.bytesDown) / 1e3}}
}
