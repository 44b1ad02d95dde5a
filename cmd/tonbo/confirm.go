package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

// confirm asks on a terminal whether to do what cannot be undone. Without a terminal only --yes lets it pass.
func (a *app) confirm(ctx context.Context, yes bool, what string) error {
	if yes {
		return nil
	}
	if !a.terminal(a.stdin) || !a.terminal(a.stderr) {
		return usagef("to %s cannot be undone, and there is no terminal to ask on: give --yes", what)
	}
	fmt.Fprintf(a.stderr, "%s? It cannot be undone. [y/N] ", what)
	// A read from a terminal cannot be called off: on ^C the process ends, and takes the reader along.
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		answers <- line
	}()
	select {
	case line := <-answers:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errors.New("not confirmed: nothing was done")
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return fmt.Errorf("nothing was done: %w", ctx.Err())
	}
}
