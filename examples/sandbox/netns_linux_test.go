package main

import (
	"io"
	"os/exec"
	"testing"
)

func TestSandboxInANetworkNamespace(t *testing.T) {
	probe := exec.CommandContext(t.Context(), "true")
	if withoutNetwork(probe); probe.Run() != nil {
		t.Skip("this system gives programs no namespaces of their own")
	}
	e := example
	e.Run = func(args []string, stdout, stderr io.Writer) int {
		return run(append(args, "--netns"), nil, stdout, stderr)
	}
	e.Want = append(e.Want[:len(e.Want):len(e.Want)], `ok    a thief tries to see a network`)
	e.Works(t)
}
