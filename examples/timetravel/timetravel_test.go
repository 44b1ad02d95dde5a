package main

import (
	"context"
	"testing"

	"github.com/tonbo-go/tonbo/examples/internal/exampletest"
	"github.com/tonbo-go/tonbo/examples/internal/show"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

var example = exampletest.Example{
	Run:  run,
	Args: []string{"--steps", "8", "--back", "3"},
	Want: []string{`rewound to "step-3"`, `row by row`, `the rewind is undone`, `again-8`},
}

func TestRunIsReadRewoundBranchedAndBroughtBack(t *testing.T) { example.Works(t) }

func TestOverS3(t *testing.T) { example.WorksOverS3(t) }

func TestInterruptedRunLeavesNothingBehind(t *testing.T) {
	exampletest.Interrupted(t, "rewound to", func(ctx context.Context, s *show.Show) error { return timetravel(ctx, options{steps: 24, back: 8}, s) })
}

func TestBadInputIsExplained(t *testing.T) {
	example.Explains(t,
		exampletest.Bad{Args: []string{"--name", "a/b"}, Want: "invalid name"},
		exampletest.Bad{Args: []string{"--steps", "5", "--back", "5"}, Want: "want to go back to a step"},
		exampletest.Bad{Args: []string{"--steps", "10000"}, Want: "too few"},
	)
}
