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
	Args: []string{},
	Want: []string{`the review refuses it`, `promoted in one transaction`, `conflict:`},
}

func TestRuinIsRefusedAndWhatIsGoodPromoted(t *testing.T) { example.Works(t) }

func TestOverS3(t *testing.T) { example.WorksOverS3(t) }

func TestInterruptedRunLeavesNothingBehind(t *testing.T) {
	exampletest.Interrupted(t, "model:", func(ctx context.Context, s *show.Show) error { return review(ctx, options{packages: 40}, s) })
}

func TestBadInputIsExplained(t *testing.T) {
	example.Explains(t,
		exampletest.Bad{Args: []string{"--name", "a/b"}, Want: "invalid name"},
	)
}
