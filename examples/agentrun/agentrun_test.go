package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/examples/internal/exampletest"
	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/internal/s3test"
)

// TestMain is also the sandboxes' main function: the orchestrator under test starts its own executable, which is this test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "sandbox" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	exampletest.Main(m)
}

func runAll(t *testing.T, args ...string) {
	t.Helper()
	empty := exampletest.TempDir(t)
	var out, errs bytes.Buffer
	code := run(append([]string{"--packages", "24"}, args...), nil, &out, &errs)
	t.Logf("%s", out.Bytes())
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.Bytes())
	}
	for _, want := range []string{"sandbox 1 killed after step", "sandbox 2 resumes at step", "sandbox 2 is refused: ", "was fenced by generation", "archive/tar"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if got := out.String(); strings.Contains(got, "FAIL") || !strings.Contains(got, "checks passed") {
		t.Error("not all checks passed")
	}
	empty()
}

func TestRunSurvivesLostMachineAndTakeover(t *testing.T) { runAll(t, "--search", "reader") }

func TestRunOverS3(t *testing.T) {
	p := s3test.At(t)
	for _, kv := range p.Env {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	runAll(t, "--url", p.URL, "--search", "reader")
}

func TestInterruptedRunLeavesNothingBehind(t *testing.T) {
	empty := exampletest.TempDir(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := orchestrate(ctx, orchestratorOptions{packages: 24}, show.New(&exampletest.CancelWriter{Text: "  step ", Cancel: cancel})); err == nil || ctx.Err() == nil {
		t.Errorf("the run was not interrupted: %v", err)
	}
	empty() // the sandbox's goroutines, and so the sandbox, are looked for by goleak
}

func TestBadInputIsExplained(t *testing.T) {
	noSource := t.TempDir()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"scheme", []string{"--url", "ftp://host/x"}, exitFailed, "want s3://bucket/prefix, file:///dir"},
		{"two slashes", []string{"--url", "file://tmp/x"}, exitFailed, "three slashes"},
		{"remote is a file", []string{"--url", show.FileURL(file)}, exitFailed, file},
		{"no bucket", []string{"--url", "s3:///x"}, exitFailed, "bucket"},
		{"no source", []string{"--goroot", noSource}, exitFailed, "no standard library source in " + noSource},
		{"name", []string{"--name", "a/b"}, exitFailed, "invalid name"},
		{"few packages", []string{"--packages", "3"}, exitFailed, "at least 6"},
		{"argument", []string{"s3://bucket"}, exitUsage, "unexpected argument"},
		{"flag", []string{"--nonsense"}, exitUsage, "nonsense"},
	} {
		t.Run(c.name, func(t *testing.T) {
			empty := exampletest.TempDir(t)
			var errs bytes.Buffer
			if code := run(c.args, nil, io.Discard, &errs); code != c.code || !strings.Contains(errs.String(), c.want) {
				t.Errorf("exit code %d, %q; want %d and %q", code, errs.String(), c.code, c.want)
			}
			t.Log(errs.String())
			empty()
		})
	}
}
