package main

import (
	"context"
	"testing"

	"github.com/tonbo-go/tonbo/examples/internal/exampletest"
	"github.com/tonbo-go/tonbo/examples/internal/show"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

var example = exampletest.Example{
	Run:      run,
	Args:     []string{"--orders", "2000"},
	Want:     []string{`"deleted":2000`, `{"rewound":"before-cleanup"}`, `2000 orders, 20 refunds`},
	NoGOROOT: true,
}

func TestModelDeletesEverythingAndTheGoldenDatabaseIsUntouched(t *testing.T) { example.Works(t) }

func TestOverS3(t *testing.T) { example.WorksOverS3(t) }

func TestInterruptedRunLeavesNothingBehind(t *testing.T) {
	exampletest.Interrupted(t, "checkpoint", func(ctx context.Context, s *show.Show) error { return harness(ctx, options{orders: 100}, s) })
}

func TestBadInputIsExplained(t *testing.T) {
	example.Explains(t,
		exampletest.Bad{Args: []string{"--name", "a/b"}, Want: "invalid name"},
		exampletest.Bad{Args: []string{"--orders", "0"}, Want: "at least one"},
	)
}
