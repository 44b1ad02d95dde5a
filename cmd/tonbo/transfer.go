package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo"
)

func (a *app) export() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "export NAME[@POINT] FILE",
		Short: "Write a database, as of a point, as a plain SQLite file",
		Long: `Write a database, as of a point, as a plain SQLite file: any SQLite opens it. FILE - is the standard output, and then nothing else is written there.

It takes nothing over: an owner may be at work.`,
		Example:           "  tonbo database export run-42@step-7 run-42.db",
		Args:              exactly(2),
		ValidArgsFunction: a.fileAfterName,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, at, err := parseNameAt(args[0])
			if err != nil {
				return err
			}
			file := args[1]
			switch {
			case file == "-" && a.json:
				return usagef("--json and FILE - both want the standard output")
			case file == "-" && a.terminal(a.stdout):
				return usagef("a database is not for a terminal: name a FILE, or pipe the output")
			}
			c, err := a.about(name)
			if err != nil {
				return err
			}
			if file == "-" {
				return c.Export(cmd.Context(), name, at, a.stdout)
			}
			n, err := exportTo(cmd.Context(), c, name, at, file, force)
			if err != nil {
				return err
			}
			v := struct {
				Name  string `json:"name"`
				File  string `json:"file"`
				Bytes int64  `json:"bytes"`
			}{name, file, n}
			return a.answer(v, func(w io.Writer) { fmt.Fprintf(w, "%s: %s\n", file, size(n)) })
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if there is one")
	return cmd
}

// exportTo writes the file under another name beside it first: file is complete, or it is not there.
func exportTo(ctx context.Context, c *tonbo.Client, name string, at tonbo.At, file string, force bool) (n int64, err error) {
	free := func() error {
		if _, err := os.Lstat(file); err == nil && !force {
			return fmt.Errorf("export to %s: %w; --force replaces it", file, fs.ErrExist)
		}
		return nil
	}
	if err := free(); err != nil { // before the long part
		return 0, err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".tonbo-export-*")
	if err != nil {
		return 0, fmt.Errorf("export to %s: %w", file, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := c.Export(ctx, name, at, f); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	if n, err = f.Seek(0, io.SeekCurrent); err != nil {
		return 0, err
	}
	if err := f.Close(); err != nil {
		return 0, err
	}
	if err := free(); err != nil {
		return 0, err
	}
	return n, os.Rename(f.Name(), file)
}

func (a *app) importFile() *cobra.Command {
	var create createFlags
	cmd := &cobra.Command{
		Use:     "import NAME FILE",
		Short:   "Create a database from a SQLite file",
		Long:    "Create a database from a SQLite file. The file is checked, read as of one commit, so that other programs may have it open, and not changed.",
		Example: "  tonbo database import golden-2 ./golden.db --frozen",
		Args:    exactly(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			a.makes = true
			c, err := a.about(args[0])
			if err != nil {
				return err
			}
			d, err := c.Import(cmd.Context(), args[0], args[1], create.options())
			if err != nil {
				return err
			}
			return a.described(d)
		},
	}
	create.add(cmd.Flags(), true, false)
	return cmd
}

// fileAfterName completes NAME FILE.
func (a *app) fileAfterName(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.names(0)(cmd, args, typed)
}
