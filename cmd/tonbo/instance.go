package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/spelling"
	"github.com/tonbo-go/tonbo/internal/view"
)

func (a *app) describedInstance(in *tonbo.Instance) error {
	v := view.InstanceOf(in)
	return a.answer(v, func(w io.Writer) {
		fmt.Fprintf(w, "key\t%s\n", v.Key)
		fmt.Fprintf(w, "database\t%s\n", orDash(v.Name))
		fmt.Fprintf(w, "id\t%s\n", orDash(v.DatabaseID))
		fmt.Fprintf(w, "generation\t%d\n", v.Generation)
		if v.Version != "" {
			fmt.Fprintf(w, "version\t%s\n", plain(v.Version))
		}
		if v.Started != "" {
			fmt.Fprintf(w, "started\t%s\n", v.Started)
		}
	})
}

func (a *app) instance() *cobra.Command {
	cmd := group(&cobra.Command{Use: "instance", Short: "Keep one database for each key"})
	cmd.AddCommand(a.ensure(), a.getInstance(), a.adopt(), a.release(), a.replace())
	return cmd
}

// instances returns the account's, and notes which key the command is about.
func (a *app) instances(key string) (*tonbo.Client, *tonbo.Instances, error) {
	a.key = key
	if err := tonbo.ValidateName(key); err != nil {
		return nil, nil, err
	}
	c, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	return c, c.Instances(), nil
}

func (a *app) ensure() *cobra.Command {
	var create createFlags
	var template, expect string
	var takeOver bool
	cmd := &cobra.Command{
		Use:   "ensure KEY",
		Short: "See to it that a key has a database that opens",
		Long: `See to it that a key has a database that opens: the key's first ensure makes it, and when it was deleted or has expired, the next one makes the key's next generation. The flags about the database are for one that is made.

To find out whether it opens, the command opens it, which takes it over, and closes it again. One that somebody has open is left alone, and counts as running; with --take-over its owner is fenced.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			a.makes = template == "" // that would be there
			c, is, err := a.instances(args[0])
			if err != nil {
				return err
			}
			if !takeOver {
				in, err := running(ctx, c, args[0])
				if err != nil {
					return err
				}
				if in != nil && (expect == "" || in.DatabaseID == expect) { // if it is another one, Ensure says so before it opens anything
					in.Started = tonbo.Running
					return a.describedInstance(in)
				}
			}
			in, err := is.Ensure(ctx, args[0], tonbo.EnsureOptions{Create: create.options(), Template: template, ExpectID: expect})
			if err != nil {
				return err
			}
			if err := in.DB.Close(); err != nil {
				return err
			}
			return a.describedInstance(in)
		},
	}
	create.add(cmd.Flags(), false, true)
	cmd.Flags().StringVar(&template, "template", "", "a database that is made begins as a fork of this one")
	cmd.Flags().StringVar(&expect, "expect-id", "", "the key must have the database with this ID: otherwise nothing is made, exit 5")
	addTakeOver(cmd, &takeOver)
	return cmd
}

// running returns the instance of a key whose database somebody has open, nil: nobody has.
func running(ctx context.Context, c *tonbo.Client, key string) (*tonbo.Instance, error) {
	in, err := c.Instances().Get(ctx, key)
	if errors.Is(err, tonbo.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d, err := c.Get(ctx, in.Name)
	if errors.Is(err, tonbo.ErrNotFound) || err == nil && (d.ID != in.DatabaseID || d.State != tonbo.StateActive) {
		return nil, nil // it has ended
	}
	if err != nil {
		return nil, err
	}
	err = notOpen(ctx, c, in.Name)
	switch {
	case errors.Is(err, tonbo.ErrBusy):
		return in, nil
	case errors.Is(err, tonbo.ErrNotFound):
		return nil, nil
	}
	return nil, err
}

func (a *app) getInstance() *cobra.Command {
	return &cobra.Command{
		Use:   "get KEY",
		Short: "Tell which database a key has",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, is, err := a.instances(args[0])
			if err != nil {
				return err
			}
			in, err := is.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.describedInstance(in)
		},
	}
}

func (a *app) adopt() *cobra.Command {
	return &cobra.Command{
		Use:               "adopt KEY DATABASE",
		Short:             "Give a database that exists, by name or ID, to a key that has none",
		Args:              exactly(2),
		ValidArgsFunction: a.names(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, is, err := a.instances(args[0])
			if err != nil {
				return err
			}
			in, err := is.Bind(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			return a.describedInstance(in)
		},
	}
}

func (a *app) release() *cobra.Command {
	return &cobra.Command{
		Use:   "release KEY",
		Short: "Take a key's database from it, and leave the database as it is",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, is, err := a.instances(args[0])
			if err != nil {
				return err
			}
			if err := is.Release(cmd.Context(), args[0]); err != nil {
				return err
			}
			v := struct {
				Key      string `json:"key"`
				Released bool   `json:"released"`
			}{args[0], true}
			return a.answer(v, func(w io.Writer) { fmt.Fprintf(w, "%s has no database now\n", args[0]) })
		},
	}
}

func (a *app) replace() *cobra.Command {
	var create createFlags
	var from, template string
	var deleteOld, yes bool
	cmd := &cobra.Command{
		Use:   "replace KEY",
		Short: "Give a key a new database",
		Long: `Give a key a new database, its next generation: an empty one, a fork of its own database as of a point (--from), or of another one (--template). The owner of the old one is fenced, and the old one is frozen and kept.

With --delete-old it is deleted, which cannot be undone: that asks on a terminal, and needs --yes without one.`,
		Example: "  tonbo instance replace customer-7 --from step-6",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from != "" && template != "" {
				return usagef("--from and --template exclude each other")
			}
			at, err := spelling.Point(from)
			if err != nil {
				return usagef("--from %w", err)
			}
			_, is, err := a.instances(args[0])
			if err != nil {
				return err
			}
			if deleteOld {
				if err := a.confirm(cmd.Context(), yes, "delete the database that "+args[0]+" has"); err != nil {
					return err
				}
			}
			in, err := is.Replace(cmd.Context(), args[0], tonbo.ReplaceOptions{From: at, Template: template, Create: create.options(), DeleteOld: deleteOld})
			if err != nil {
				return err
			}
			return a.describedInstance(in)
		},
	}
	f := cmd.Flags()
	create.add(f, false, false)
	f.StringVar(&from, "from", "", "fork the key's database as of this point: a label, slot:N, time:T")
	f.StringVar(&template, "template", "", "fork this database")
	f.BoolVar(&deleteOld, "delete-old", false, "delete the old database")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}
