package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/examples/internal/exampletest"
	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/internal/s3test"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "desk" { // a child of the run under test
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	exampletest.Main(m)
}

func runAll(t *testing.T, args ...string) {
	t.Helper()
	empty := exampletest.TempDir(t)
	var out, errs bytes.Buffer
	code := run(append([]string{"--processes", "3", "--customers", "3", "--messages", "2"}, args...), nil, &out, &errs)
	t.Logf("%s", out.Bytes())
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.Bytes())
	}
	for _, want := range []string{"each customer has one database", "exactly one process made it", "checks passed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	empty()
}

func TestEachCustomerHasOneDatabase(t *testing.T) { runAll(t) }

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
	out := &exampletest.CancelWriter{Text: "Answer", Cancel: cancel}
	code := show.Run(ctx, "example", out, io.Discard, func(ctx context.Context, s *show.Show) error {
		return open(ctx, options{processes: 3, customers: 4, messages: 4}, s)
	})
	if code != show.ExitFailed || ctx.Err() == nil {
		t.Errorf("exit code %d: the run was not interrupted", code)
	}
	empty()
}

func TestBadInputIsExplained(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--processes", "0"}, "want 1 at least"},
		{[]string{"--url", "ftp://host/x"}, "want s3://bucket/prefix, file:///dir"},
		{[]string{"--goroot", t.TempDir()}, "no standard library source"},
	} {
		empty := exampletest.TempDir(t)
		var errs bytes.Buffer
		if code := run(c.args, nil, io.Discard, &errs); code != show.ExitFailed || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: exit code %d, %q; want %q", c.args, code, errs.String(), c.want)
		}
		empty()
	}
}
