package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/spelling"
	"github.com/tonbo-go/tonbo/internal/view"
)

func (a *app) log() *cobra.Command {
	var limit int
	var labelled bool
	cmd := &cobra.Command{
		Use:   "log NAME",
		Short: "Show what was done to a database, the newest first",
		Long: `Show what was done to a database, the newest first: every entry of its log that can be gone back to. Each is a point: NAME@slot:SLOT, or NAME@LABEL.

Pages are those of the database after the entry, bytes what the entry itself takes in the remote.`,
		Args:              exactly(1),
		ValidArgsFunction: a.names(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usagef("--limit %d: want a number from 0 on", limit)
			}
			c, err := a.about(args[0])
			if err != nil {
				return err
			}
			t := table(a.stdout)
			if !a.json {
				fmt.Fprintln(t, "SLOT\tGENERATION\tTIME\tKIND\tLABEL\tPAGES\tBYTES\tBY")
			}
			n := 0
			for h, err := range c.History(cmd.Context(), args[0]) {
				if err != nil {
					return err
				}
				if labelled && h.Label == "" {
					continue
				}
				e := view.EntryOf(h)
				if a.json {
					err = encode(a.stdout, e)
				} else {
					kind := e.Kind
					if e.RewoundTo > 0 {
						kind = fmt.Sprintf("%s to %d", kind, e.RewoundTo)
					}
					_, err = fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%d\t%d\t%s\n", e.Slot, e.Generation, e.Time, kind, orDash(plain(e.Label)), e.Pages, e.Bytes, plain(e.By))
				}
				if err != nil {
					return err
				}
				if n++; n == limit {
					break
				}
			}
			return t.Flush()
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many (default all)")
	cmd.Flags().BoolVar(&labelled, "labels", false, "only points with a label")
	return cmd
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) rewind() *cobra.Command {
	return &cobra.Command{
		Use:   "rewind NAME@POINT",
		Short: "Take a database back to an earlier point",
		Long: `Take a database back to an earlier point. Its owner, if there is one, is fenced. The history stays: the answer is the point that was the head, and to rewind there undoes it.

To look at an earlier point, tonbo query NAME@POINT; to go on from it beside the present, tonbo fork NAME@POINT OTHER.`,
		Example:           "  tonbo rewind run-42@step-6",
		Args:              exactly(1),
		ValidArgsFunction: a.names(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, at, err := parseNameAt(args[0])
			if err != nil {
				return err
			}
			if at == nil {
				return usagef("rewind to which point? %s@LABEL, %s@slot:N or %s@time:T; tonbo log %s lists them", name, name, name, name)
			}
			c, err := a.about(name)
			if err != nil {
				return err
			}
			before, err := c.Rewind(cmd.Context(), name, at)
			if err != nil {
				return err
			}
			v := view.Rewound{Name: name, Before: view.PointOf(before)}
			return a.answer(v, func(w io.Writer) {
				fmt.Fprintf(w, "%s is rewound to %s; the head was slot %d: tonbo rewind %s@slot:%d undoes this\n", name, plain(args[0][len(name)+1:]), before.Slot, name, before.Slot)
			})
		},
	}
}

func (a *app) fork() *cobra.Command {
	var create createFlags
	cmd := &cobra.Command{
		Use:               "fork SOURCE[@POINT] NAME",
		Short:             "Create a database that begins as another one is at a point",
		Long:              "Create a database that begins as another one is at a point. Nothing is copied: it takes as long for a large one as for a small one. The source's owner is not disturbed, and what it has not shipped is not in the fork.",
		Example:           "  tonbo fork run-42@step-7 attempt-2 --ttl 1d",
		Args:              exactly(2),
		ValidArgsFunction: a.names(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, at, err := parseNameAt(args[0])
			if err != nil {
				return err
			}
			if err := tonbo.ValidateName(args[1]); err != nil {
				return err
			}
			c, err := a.about(source)
			if err != nil {
				return err
			}
			d, err := c.Fork(cmd.Context(), source, args[1], tonbo.ForkOptions{CreateOptions: create.options(), At: at})
			if err != nil {
				return err
			}
			return a.described(d)
		},
	}
	create.add(cmd.Flags(), true, false)
	return cmd
}

func (a *app) checkpoint() *cobra.Command {
	var takeOver bool
	cmd := &cobra.Command{
		Use:   "checkpoint NAME LABEL",
		Short: "Give the present point of a database a label, so that it stays restorable",
		Long: `Give the present point of a database a label. It stays restorable as long as the database lives, whatever the history window.

Only an owner can do that: the command opens the database, which takes it over, and closes it again. It refuses when somebody has it open, or has not closed it, and exits with 5; with --take-over it fences that owner.`,
		Example:           "  tonbo checkpoint run-42 before-migration",
		Args:              exactly(2),
		ValidArgsFunction: a.names(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := spelling.Label(args[1]); err != nil { // before the database is taken over
				return &usageError{err: err}
			}
			c, err := a.about(args[0])
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if !takeOver {
				if err := notOpen(ctx, c, args[0]); err != nil {
					return err
				}
			}
			db, err := c.Open(ctx, args[0])
			if err != nil {
				return err
			}
			p, err := db.Checkpoint(ctx, args[1])
			if err = errors.Join(err, db.Close()); err != nil {
				return err
			}
			v := view.Labelled{Name: args[0], Point: view.PointOf(p)}
			return a.answer(v, func(w io.Writer) { fmt.Fprintf(w, "%s@%s is slot %d\n", args[0], plain(args[1]), p.Slot) })
		},
	}
	addTakeOver(cmd, &takeOver)
	return cmd
}

func addTakeOver(cmd *cobra.Command, takeOver *bool) {
	cmd.Flags().BoolVar(takeOver, "take-over", false, "also when somebody has the database open: its owner is fenced")
}

// busyError is a database that its owner has not closed.
type busyError struct {
	name string
	head tonbo.HistoryEntry
}

func (e *busyError) Error() string {
	return fmt.Sprintf("database %s: %s has it open, or did not close it; its last entry is a %s %s ago. --take-over takes it over and fences that owner",
		e.name, e.head.By, e.head.Kind, time.Since(e.head.Time).Round(time.Millisecond))
}

// Is makes errors.Is see tonbo.ErrBusy.
func (e *busyError) Is(target error) bool { return target == tonbo.ErrBusy }

// notOpen tells whether nobody has a database open, as far as its log shows: it ends in a close, or nobody has opened it yet. Who opens it from here on is not seen.
func notOpen(ctx context.Context, c *tonbo.Client, name string) error {
	for h, err := range c.History(ctx, name) {
		if err != nil {
			return err
		}
		if h.Kind == "close" || h.Kind == "create" {
			return nil
		}
		return &busyError{name, h}
	}
	return fmt.Errorf("database %s: %w", name, tonbo.ErrNotFound)
}
