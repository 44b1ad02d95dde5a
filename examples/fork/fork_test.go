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
	Args: []string{"--packages", "24"},
	Want: []string{`20 agents fork it at once`, `promoted`, `what each fork cost`, `deadlock`},
}

func TestEachForkHasItsOwnRowsAndOneIsPromoted(t *testing.T) { example.Works(t) }

func TestOverS3(t *testing.T) { example.WorksOverS3(t) }

func TestInterruptedRunLeavesNothingBehind(t *testing.T) {
	exampletest.Interrupted(t, "fork it at once", func(ctx context.Context, s *show.Show) error { return forks(ctx, options{packages: 24}, s) })
}

func TestBadInputIsExplained(t *testing.T) {
	example.Explains(t,
		exampletest.Bad{Args: []string{"--name", "a/b"}, Want: "invalid name"},
	)
}
