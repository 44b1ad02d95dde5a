package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo"
)

func (a *app) diff() *cobra.Command {
	var sql, summary bool
	var rows int
	cmd := &cobra.Command{
		Use:   "diff NAME[@POINT] NAME[@POINT]",
		Short: "Show what turns one database, or one point of it, into another",
		Long: `Show what turns the first into the second: schema, and rows by primary key. Two points of a database, a fork and its source, or two that have nothing in common. Nothing is taken over.

With --json it is the change set, which loses nothing; with --sql a script that makes the changes to the first.`,
		Example:           "  tonbo diff run-42@step-6 run-42@step-7",
		Args:              exactly(2),
		ValidArgsFunction: a.names(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if rows < 0 || (sql || summary) && a.json || sql && summary {
				return usagef("--max-rows is a number from 0 on, and --json, --sql and --summary exclude each other")
			}
			var refs [2]tonbo.Ref
			for i := range refs {
				name, at, err := parseNameAt(args[i])
				if err != nil {
					return err
				}
				refs[i] = tonbo.Ref{Name: name, At: at}
			}
			c, err := a.about(refs[0].Name)
			if err != nil {
				return err
			}
			if refs[0].Name != refs[1].Name {
				a.subject = "" // which of the two, the message tells
			}
			refs[0].Client, refs[1].Client = c, c
			set, err := tonbo.Diff(cmd.Context(), refs[0], refs[1], tonbo.DiffOptions{MaxRows: rows})
			if err != nil {
				return err
			}
			a.progress.clear()
			switch {
			case a.json:
				return encode(a.stdout, set)
			case sql:
				return set.WriteSQL(a.stdout)
			case summary:
				return summarize(a.stdout, set)
			}
			return set.WriteText(a.stdout)
		},
	}
	cmd.Flags().BoolVar(&sql, "sql", false, "answer with a SQL script")
	cmd.Flags().BoolVar(&summary, "summary", false, "answer with the number of rows for each table")
	cmd.Flags().IntVar(&rows, "max-rows", 0, "refuse when more rows differ (default 100000)")
	return cmd
}

// summarize tells how much differs.
func summarize(to io.Writer, set *tonbo.ChangeSet) error {
	t := table(to)
	var errs []error
	line := func(format string, args ...any) {
		_, err := fmt.Fprintf(t, format, args...)
		errs = append(errs, err)
	}
	line("TABLE\tINSERTED\tUPDATED\tDELETED\n")
	for i := range set.Tables {
		inserted, updated, deleted := set.Tables[i].Count()
		line("%s\t%d\t%d\t%d\n", plain(set.Tables[i].Name), inserted, updated, deleted)
	}
	if n := len(set.Schema); n > 0 {
		line("(schema)\t%d\t\t\n", n)
	}
	return errors.Join(errors.Join(errs...), t.Flush())
}
