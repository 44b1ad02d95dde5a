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
	if len(os.Args) > 1 && os.Args[1] == "desk" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	exampletest.Main(m)
}

var example = exampletest.Example{
	Run:  func(args []string, stdout, stderr io.Writer) int { return run(args, nil, stdout, stderr) },
	Args: []string{"--processes", "3", "--customers", "3", "--messages", "2"},
	Want: []string{`each customer has one database`, `exactly one process made it`},
}

func TestEachCustomerHasOneDatabase(t *testing.T) { example.Works(t) }

func TestOverS3(t *testing.T) { example.WorksOverS3(t) }

func TestInterruptedRunLeavesNothingBehind(t *testing.T) {
	exampletest.Interrupted(t, "Answer", func(ctx context.Context, s *show.Show) error {
		return open(ctx, options{processes: 3, customers: 4, messages: 4}, s)
	})
}

func TestBadInputIsExplained(t *testing.T) {
	example.Explains(t,
		exampletest.Bad{Args: []string{"--prefix", "a/b"}, Want: "invalid name"},
		exampletest.Bad{Args: []string{"--processes", "0"}, Want: "want 1 at least"},
	)
}
