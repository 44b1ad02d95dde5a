package show_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/examples/internal/show"
)

func TestFailedCheckEndsTheProgramWithAnError(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		run  func(context.Context, *show.Show) error
		code int
		out  string
		err  string
	}{
		{"kept", nil, func(_ context.Context, s *show.Show) error { s.Check("a", true, ""); return nil }, 0, "1 checks passed", ""},
		{"broken", nil, func(_ context.Context, s *show.Show) error {
			s.Check("a", true, "")
			s.Check("b", false, "it is %d", 7)
			return nil
		}, show.ExitFailed, "FAIL  b: it is 7", "1 of 2 checks failed"},
		{"error", nil, func(context.Context, *show.Show) error { return errors.New("no luck") }, show.ExitFailed, "", "test: no luck"},
		{"argument", []string{"x"}, nil, show.ExitUsage, "", "unexpected argument"},
		{"flag", []string{"--x"}, nil, show.ExitUsage, "", "not defined"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := show.Main(flag.NewFlagSet("test", flag.ContinueOnError), c.args, &out, &errs, c.run); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.err) {
				t.Errorf("got %q and %q, want %q and %q", out.String(), errs.String(), c.out, c.err)
			}
		})
	}
}
