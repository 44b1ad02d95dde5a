package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestDocumentNamesEveryCommandFlagAndCode(t *testing.T) {
	b, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	n := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() && !strings.Contains(text, "`"+strings.TrimSuffix(cmd.UseLine(), " [flags]")+"`") {
			t.Errorf("docs/cli.md does not show `%s`", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
		}
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if n++; f.Name != "help" && !strings.Contains(text, "--"+f.Name) {
				t.Errorf("docs/cli.md does not name --%s of %s", f.Name, cmd.CommandPath())
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk((&app{}).root())
	if n < 40 {
		t.Errorf("%d flags found", n)
	}
	for _, o := range outcomes {
		if !strings.Contains(text, "`"+o.code+"`") {
			t.Errorf("docs/cli.md does not explain the code %s", o.code)
		}
	}
	for code := range exitConflict + 1 {
		if !strings.Contains(text, fmt.Sprintf("\n| %d | ", code)) {
			t.Errorf("docs/cli.md does not explain exit %d", code)
		}
	}
}
