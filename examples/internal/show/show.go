// Package show is what the examples have in common: how a run goes, what was checked, how it ends.
package show

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/tonbo-go/tonbo"
)

// Exit codes.
const (
	ExitFailed = 1
	ExitUsage  = 2
)

// Main parses args and runs an example until it ends or ^C does it. It returns the exit code: 0 only when every check passed.
func Main(flags *flag.FlagSet, args []string, stdout, stderr io.Writer, run func(context.Context, *Show) error) int {
	flags.SetOutput(stderr)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return ExitUsage
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "%s: unexpected argument %q; see --help\n", flags.Name(), flags.Arg(0))
		return ExitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Run(ctx, flags.Name(), stdout, stderr, run)
}

// Run is Main without flags and signals.
func Run(ctx context.Context, name string, stdout, stderr io.Writer, run func(context.Context, *Show) error) int {
	s := New(stdout)
	err := run(ctx, s)
	s.endLine()
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintf(stderr, "%s: interrupted; the temporary directories are removed\n", name)
		return ExitFailed
	case err == nil:
		err = s.verdict()
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return ExitFailed
	}
	return 0
}

// Show writes how a run goes: a bar on a terminal, else a line now and then; and it keeps what was checked. Safe for concurrent use.
type Show struct {
	start    time.Time
	terminal bool

	mu     sync.Mutex
	w      io.Writer
	open   bool // the bar's line is not ended
	checks []check
}

// check is a promise and whether it was kept.
type check struct {
	what string
	why  string // it was not; "" when it was
}

// New begins a run that is written to w.
func New(w io.Writer) *Show {
	s := &Show{w: w, start: time.Now()}
	if f, ok := w.(*os.File); ok {
		fi, err := f.Stat()
		s.terminal = err == nil && fi.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// Step shows that done of total steps are done.
func (s *Show) Step(done, total int, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := fmt.Sprintf(format, args...)
	if s.terminal {
		const width = 40
		full := width * done / total
		fmt.Fprintf(s.w, "\r\x1b[K  [%s%s] %d/%d  %s", strings.Repeat("#", full), strings.Repeat(".", width-full), done, total, what)
		s.open = true
		return
	}
	if every := max(1, total/8); done%every == 0 || done == total {
		fmt.Fprintf(s.w, "       %3d/%d  %s\n", done, total, what)
	}
}

// Say writes a line of the story, with the seconds since the start before it.
func (s *Show) Say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLineLocked()
	fmt.Fprintf(s.w, "%5.1fs %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// Table writes rows, aligned to the right or to the left.
func (s *Show) Table(title string, right bool, rows [][]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLineLocked()
	fmt.Fprintf(s.w, "\n%s\n", title)
	var flags uint
	end := ""
	if right {
		flags, end = tabwriter.AlignRight, "\t" // the last column is not a cell without it
	}
	w := tabwriter.NewWriter(s.w, 0, 0, 2, ' ', flags)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t")+end)
	}
	return w.Flush()
}

// Check notes a promise and whether it was kept; format says what is the case when it was not.
func (s *Show) Check(what string, ok bool, format string, args ...any) {
	c := check{what: what}
	if !ok {
		c.why = fmt.Sprintf(format, args...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks = append(s.checks, c)
}

// verdict writes the checks, and returns an error if one failed.
func (s *Show) verdict() error {
	fmt.Fprintln(s.w)
	failed := 0
	for _, c := range s.checks {
		if c.why == "" {
			fmt.Fprintf(s.w, "  ok    %s\n", c.what)
			continue
		}
		failed++
		fmt.Fprintf(s.w, "  FAIL  %s: %s\n", c.what, c.why)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(s.checks))
	}
	fmt.Fprintf(s.w, "\n%d checks passed, %.1f s\n", len(s.checks), time.Since(s.start).Seconds())
	return nil
}

func (s *Show) endLine() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLineLocked()
}

func (s *Show) endLineLocked() {
	if s.open {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.open = false
	}
}

// FileURL spells a directory as a remote's URL, or a file as SQLite's.
func FileURL(dir string) string {
	path := filepath.ToSlash(dir)
	if !strings.HasPrefix(path, "/") { // a Windows drive
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// Requests is the number of requests of all kinds.
func Requests(q tonbo.Requests) int64 { return q.Put + q.Get + q.Head + q.List + q.Delete }

// Bytes spells a number of bytes.
func Bytes(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.2f MB", float64(n)/1e6)
}

// Clip makes a text one line of at most n characters.
func Clip(text string, n int) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > n {
		text = string(r[:n-1]) + "…"
	}
	return text
}
