package main

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/tonbo-go/tonbo/examples/internal/exampletest"
	"github.com/tonbo-go/tonbo/examples/internal/show"
)

// TestMain is also the main function of the children: the run under test starts its own executable, which is this test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "work" || os.Args[1] == "steal") {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	exampletest.Main(m)
}

var example = exampletest.Example{
	Run: func(args []string, stdout, stderr io.Writer) int { return run(args, nil, stdout, stderr) },
	Want: []string{`sandbox 1 killed after step`, `sandbox 2 opens`, `ok    every step is there`, `ok    a thief tries to find something else in its environment and its home`, `ok    a thief tries to list the databases`, `ok    a thief tries to open another database`,
		`ok    a thief tries to delete the run`, `ok    a thief tries to make a key`, `ok    the key dies with its database`},
}

func TestSandboxHoldsNothingWorthStealing(t *testing.T) { example.Works(t) }

func TestOverS3(t *testing.T) { example.WorksOverS3(t) }

func TestInterruptedRunLeavesNothingBehind(t *testing.T) {
	exampletest.Interrupted(t, "step 3", func(ctx context.Context, s *show.Show) error { return orchestrate(ctx, "", "", false, s) })
}
