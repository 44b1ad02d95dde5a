package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/examples/internal/exampletest"
	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/internal/s3test"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func runAll(t *testing.T, args ...string) {
	t.Helper()
	empty := exampletest.TempDir(t)
	var out, errs bytes.Buffer
	code := run(append([]string{"--steps", "8", "--back", "3"}, args...), &out, &errs)
	t.Logf("%s", out.Bytes())
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.Bytes())
	}
	for _, want := range []string{"rewound to \"step-3\"", "row by row", "the rewind is undone", "again-8", "checks passed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	empty()
}

func TestRunIsReadRewoundBranchedAndBroughtBack(t *testing.T) { runAll(t) }

func TestOverS3(t *testing.T) {
	p := s3test.At(t)
	for _, kv := range p.Env {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	runAll(t, "--url", p.URL)
}

func TestInterruptedRunLeavesNothingBehind(t *testing.T) {
	empty := exampletest.TempDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &exampletest.CancelWriter{Text: "rewound to", Cancel: cancel}
	code := show.Run(ctx, "example", out, io.Discard, func(ctx context.Context, s *show.Show) error { return timetravel(ctx, options{steps: 24, back: 8}, s) })
	if code != show.ExitFailed || ctx.Err() == nil {
		t.Errorf("exit code %d: the run was not interrupted", code)
	}
	empty()
}

func TestBadInputIsExplained(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"scheme", []string{"--url", "ftp://host/x"}, "want s3://bucket/prefix, file:///dir"},
		{"no source", []string{"--goroot", t.TempDir()}, "no standard library source"},
		{"steps", []string{"--steps", "5", "--back", "5"}, "want to go back to a step"},
		{"name", []string{"--name", "a/b"}, "invalid name"},
		{"many steps", []string{"--steps", "10000"}, "too few"},
	} {
		t.Run(c.name, func(t *testing.T) {
			empty := exampletest.TempDir(t)
			var errs bytes.Buffer
			if code := run(c.args, io.Discard, &errs); code != show.ExitFailed || !strings.Contains(errs.String(), c.want) {
				t.Errorf("exit code %d, %q; want %d and %q", code, errs.String(), show.ExitFailed, c.want)
			}
			empty()
		})
	}
}
