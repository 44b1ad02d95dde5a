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
	code := run(append([]string{"--packages", "0"}, args...), &out, &errs)
	t.Logf("%s", out.Bytes())
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.Bytes())
	}
	for _, want := range []string{"the review refuses it", "promoted in one transaction", "conflict:", "checks passed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	empty()
}

func TestRuinIsRefusedAndWhatIsGoodPromoted(t *testing.T) { runAll(t) }

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
	out := &exampletest.CancelWriter{Text: "model:", Cancel: cancel}
	code := show.Run(ctx, "example", out, io.Discard, func(ctx context.Context, s *show.Show) error { return review(ctx, options{packages: 40}, s) })
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
		{"name", []string{"--name", "a/b"}, "invalid name"},
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
