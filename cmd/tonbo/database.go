package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/view"
)

func (a *app) database() *cobra.Command {
	cmd := group(&cobra.Command{Use: "database", Aliases: []string{"db"}, Short: "Create, find, change and delete databases"})
	cmd.AddCommand(a.create(), a.get(), a.list(), a.count(), a.update(), a.delete(), a.export(), a.importFile(), a.freeze(), a.thaw())
	return cmd
}

func (a *app) create() *cobra.Command {
	var create createFlags
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create an empty database",
		Example: "  tonbo database create run-42 --ttl 1h --metadata task=42",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.makes = true
			c, err := a.about(args[0])
			if err != nil {
				return err
			}
			d, err := c.Create(cmd.Context(), args[0], create.options())
			if err != nil {
				return err
			}
			return a.described(d)
		},
	}
	create.add(cmd.Flags(), true, true)
	return cmd
}

func (a *app) get() *cobra.Command {
	return &cobra.Command{
		Use:               "get NAME",
		Short:             "Describe a database",
		Args:              exactly(1),
		ValidArgsFunction: a.names(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.about(args[0])
			if err != nil {
				return err
			}
			d, err := c.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.described(d)
		},
	}
}

func (a *app) list() *cobra.Command {
	var pick filterFlags
	var limit int
	var after string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List databases",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("--limit %d: want a number from 0 on", limit)
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			f := pick.filter()
			f.Limit, f.After = limit, after
			t := table(a.stdout)
			if !a.json {
				fmt.Fprintln(t, "NAME\tSTATE\tCREATED\tEXPIRES\tMETADATA")
			}
			for d, err := range c.List(cmd.Context(), f) {
				if err != nil {
					return err
				}
				v := view.DatabaseOf(d)
				if a.json {
					if err := encode(a.stdout, v); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(t, "%s\t%s%s\t%s\t%s\t%s\n", v.Name, v.State, marks(v), v.CreatedAt, v.ExpiresAt, spellPairs(v.Metadata))
			}
			return t.Flush()
		},
	}
	pick.add(cmd.Flags())
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many (default all)")
	cmd.Flags().StringVar(&after, "after", "", "only names after this one: the last one of the page before")
	return cmd
}

func (a *app) count() *cobra.Command {
	var pick filterFlags
	var most int
	cmd := &cobra.Command{
		Use:     "count",
		Short:   "Count databases, and fail when there are too many",
		Long:    "Count databases. With --max it exits with 3 when there are more: alert on the count, before the bill does.",
		Example: "  tonbo database count --metadata kind=agent-scratch-db --max 50",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bounded := cmd.Flags().Changed("max")
			if most < 0 {
				return usagef("--max %d: want a number from 0 on", most)
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			n, err := c.Count(cmd.Context(), pick.filter())
			if err != nil {
				return err
			}
			v := struct {
				Count int  `json:"count"`
				Max   *int `json:"max,omitempty"`
			}{Count: n}
			if bounded {
				v.Max = &most
			}
			if err := a.answer(v, func(w io.Writer) { fmt.Fprintln(w, n) }); err != nil {
				return err
			}
			if bounded && n > most {
				return &thresholdError{n: n, most: most}
			}
			return nil
		},
	}
	pick.add(cmd.Flags())
	cmd.Flags().IntVar(&most, "max", 0, "exit with 3 when there are more than this")
	return cmd
}

func (a *app) update() *cobra.Command {
	var ttl duration
	var expires string
	var metadata pairs
	var remove []string
	var protected bool
	cmd := &cobra.Command{
		Use:               "update NAME",
		Short:             "Change a database's expiry, metadata or protection",
		Long:              "Change a database's expiry, metadata or protection. What no flag names stays as it is. An owner that has the database open goes on.",
		Args:              exactly(1),
		ValidArgsFunction: a.names(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			var o tonbo.UpdateOptions
			f := cmd.Flags()
			if f.Changed("ttl") {
				d := time.Duration(ttl)
				o.TTL = &d
			}
			if f.Changed("expires-at") {
				var t when
				if expires != "never" {
					if err := t.Set(expires); err != nil {
						return usagef("--expires-at %w, or never", err)
					}
				}
				at := time.Time(t)
				o.ExpiresAt = &at
			}
			if f.Changed("protected") {
				o.Protected = &protected
			}
			if len(metadata)+len(remove) > 0 {
				o.Metadata = map[string]*string{}
			}
			for k, v := range metadata {
				o.Metadata[k] = &v
			}
			for _, k := range remove {
				if _, both := o.Metadata[k]; both {
					return usagef("--metadata and --remove-metadata both name %q", k)
				}
				o.Metadata[k] = nil
			}
			if o.TTL == nil && o.ExpiresAt == nil && o.Protected == nil && o.Metadata == nil {
				return usagef("nothing to change: give --ttl, --expires-at, --metadata, --remove-metadata or --protected")
			}
			c, err := a.about(args[0])
			if err != nil {
				return err
			}
			d, err := c.Update(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			return a.described(d)
		},
	}
	f := cmd.Flags()
	f.Var(&ttl, "ttl", "it expires this long from now: 1h, 7d")
	f.StringVar(&expires, "expires-at", "", "or at this time: 2026-11-30T10:00:00Z; never")
	f.Var(&metadata, "metadata", "set this pair, and leave others; can be given several times")
	f.StringArrayVar(&remove, "remove-metadata", nil, "remove the pair with this key; can be given several times")
	f.BoolVar(&protected, "protected", false, "refuse to delete it and do not let it expire; --protected=false takes that away")
	return cmd
}

func (a *app) delete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a database",
		Long: `Delete a database. It cannot be undone: export it first, if in doubt. Its owner is refused from then on; its forks keep what they need.

It asks on a terminal, and needs --yes without one. A deletion that was interrupted is finished by the next one.`,
		Args:              exactly(1),
		ValidArgsFunction: a.names(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.about(args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), yes, "delete database "+args[0]); err != nil {
				return err
			}
			if err := c.Delete(cmd.Context(), args[0]); err != nil {
				return err
			}
			v := struct {
				Name    string `json:"name"`
				Deleted bool   `json:"deleted"`
			}{args[0], true}
			return a.answer(v, func(w io.Writer) { fmt.Fprintf(w, "%s is deleted\n", args[0]) })
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) freeze() *cobra.Command {
	return a.setFrozen("freeze NAME", "Make a database unchangeable", "Make a database unchangeable until tonbo database thaw: it can be read, forked, exported and deleted. Its owner, if there is one, is fenced.", true)
}

func (a *app) thaw() *cobra.Command {
	return a.setFrozen("thaw NAME", "Make a frozen database writable again", "", false)
}

func (a *app) setFrozen(use, short, long string, frozen bool) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		Args:              exactly(1),
		ValidArgsFunction: a.names(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.about(args[0])
			if err != nil {
				return err
			}
			d, err := c.Update(cmd.Context(), args[0], tonbo.UpdateOptions{Frozen: &frozen})
			if err != nil {
				return err
			}
			return a.described(d)
		},
	}
}
