package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/tonbo-go/tonbo/examples/internal/exampletest"
	"github.com/tonbo-go/tonbo/examples/internal/show"
)

// TestMain is also the main function of the children: the run under test starts its own executable, which is this test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "sandbox" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	exampletest.Main(m)
}

var example = exampletest.Example{
	Run:  func(args []string, stdout, stderr io.Writer) int { return run(args, nil, stdout, stderr) },
	Args: []string{"--packages", "24"},
	Want: []string{`sandbox 1 killed after step`, `sandbox 2 resumes at step`, `sandbox 2 is refused: `, `was fenced by generation`, `archive/tar`},
}

func TestRunSurvivesLostMachineAndTakeover(t *testing.T) { example.Works(t, "--search", "reader") }

func TestOverS3(t *testing.T) { example.WorksOverS3(t, "--search", "reader") }

func TestInterruptedRunLeavesNothingBehind(t *testing.T) {
	exampletest.Interrupted(t, "  step ", func(ctx context.Context, s *show.Show) error {
		return orchestrate(ctx, orchestratorOptions{packages: 24}, s)
	})
}

func TestBadInputIsExplained(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	example.Explains(t,
		exampletest.Bad{Args: []string{"--name", "a/b"}, Want: "invalid name"},
		exampletest.Bad{Args: []string{"--packages", "3"}, Want: "at least 6"},
		exampletest.Bad{Args: []string{"--url", "file://tmp/x"}, Want: "three slashes"},
		exampletest.Bad{Args: []string{"--url", "s3:///x"}, Want: "bucket"},
		exampletest.Bad{Args: []string{"--url", show.FileURL(file)}, Want: file},
	)
}
