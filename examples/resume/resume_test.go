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
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	exampletest.Main(m)
}

var example = exampletest.Example{
	Run:  func(args []string, stdout, stderr io.Writer) int { return run(args, nil, stdout, stderr) },
	Args: []string{"--packages", "40", "--kills", "3"},
	Want: []string{`killed with`, `each step took effect once`},
}

func TestKilledAgentTakesEachStepOnce(t *testing.T) { example.Works(t) }

func TestOverS3(t *testing.T) { example.WorksOverS3(t) }

func TestInterruptedRunLeavesNothingBehind(t *testing.T) {
	exampletest.Interrupted(t, "killed", func(ctx context.Context, s *show.Show) error {
		return supervise(ctx, options{packages: 12, kills: 3}, s)
	})
}

func TestBadInputIsExplained(t *testing.T) {
	example.Explains(t,
		exampletest.Bad{Args: []string{"--name", "a/b"}, Want: "invalid name"},
		exampletest.Bad{Args: []string{"--kills", "-1"}, Want: "no negative number"},
	)
}
