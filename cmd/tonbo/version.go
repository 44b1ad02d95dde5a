package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Tell which version this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				Revision string `json:"revision"`
				Modified bool   `json:"modified"`
				Go       string `json:"go"`
				System   string `json:"system"`
			}{Version: buildVersion(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					switch s.Key {
					case "vcs.revision":
						v.Revision = s.Value
					case "vcs.modified":
						v.Modified = s.Value == "true"
					}
				}
			}
			return a.answer(v, func(w io.Writer) {
				fmt.Fprintf(w, "tonbo %s", v.Version)
				if v.Revision != "" {
					fmt.Fprintf(w, " (%.12s)", v.Revision)
				}
				fmt.Fprintf(w, ", %s, %s\n", v.Go, v.System)
			})
		},
	}
}

// buildVersion is the module's version that this was built from.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
