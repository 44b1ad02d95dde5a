package exampletest

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/internal/s3test"
)

// Example is an example under test.
type Example struct {
	Run  func(args []string, stdout, stderr io.Writer) int // its main function
	Args []string                                          // that make it small
	Want []string                                          // what its output must contain, beside that all checks passed

	NoGOROOT bool // it does not read the standard library
}

// Works runs the example and looks at what it says.
func (e Example) Works(t *testing.T, args ...string) {
	t.Helper()
	empty := TempDir(t)
	var out, errs bytes.Buffer
	code := e.Run(append(append([]string{}, e.Args...), args...), &out, &errs)
	t.Logf("%s", out.Bytes())
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.Bytes())
	}
	for _, want := range append(e.Want, "checks passed") {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if strings.Contains(out.String(), "FAIL") {
		t.Error("a check failed")
	}
	empty()
}

// WorksOverS3 is Works with a remote in the S3 store that the tests run against.
func (e Example) WorksOverS3(t *testing.T, args ...string) {
	t.Helper()
	p := s3test.At(t)
	for _, kv := range p.Env {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	e.Works(t, append(args, "--url", p.URL)...)
}

// Interrupted ends a run as ^C does once it has said text, and checks that it leaves nothing behind.
func Interrupted(t *testing.T, text string, run func(context.Context, *show.Show) error) {
	t.Helper()
	empty := TempDir(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	code := show.Run(ctx, "example", &CancelWriter{Text: text, Cancel: cancel}, io.Discard, run)
	if code != show.ExitFailed || ctx.Err() == nil {
		t.Errorf("exit code %d: the run was not interrupted", code)
	}
	empty()
}

// Bad is input that an example refuses.
type Bad struct {
	Args []string
	Want string // what its error must contain
	Code int    // 0: show.ExitFailed
}

// Explains checks that bad input is refused with an error that says why, and leaves nothing behind.
func (e Example) Explains(t *testing.T, bad ...Bad) {
	t.Helper()
	bad = append(bad, Bad{Args: []string{"--url", "ftp://host/x"}, Want: "want s3://bucket/prefix, file:///dir"},
		Bad{Args: []string{"s3://bucket"}, Want: "unexpected argument", Code: show.ExitUsage}, Bad{Args: []string{"--nonsense"}, Want: "nonsense", Code: show.ExitUsage})
	if !e.NoGOROOT {
		bad = append(bad, Bad{Args: []string{"--goroot", t.TempDir()}, Want: "no standard library source"})
	}
	for _, b := range bad {
		t.Run(strings.Join(b.Args, " "), func(t *testing.T) {
			empty := TempDir(t)
			want := b.Code
			if want == 0 {
				want = show.ExitFailed
			}
			var errs bytes.Buffer
			if code := e.Run(b.Args, io.Discard, &errs); code != want || !strings.Contains(errs.String(), b.Want) {
				t.Errorf("exit code %d, %q; want %d and %q", code, errs.String(), want, b.Want)
			}
			empty()
		})
	}
}
