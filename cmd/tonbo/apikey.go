package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/view"
)

// reach says in one column what the key reaches.
func reach(k view.Key) string {
	r := "everything"
	if k.Narrowed {
		r = "nothing any more"
		var all []string
		all = append(all, k.Databases...)
		for _, p := range k.Prefixes {
			all = append(all, p+"*")
		}
		if len(all) > 0 {
			r = strings.Join(all, " ")
		}
	}
	if k.ReadOnly {
		r += ", read-only"
	}
	return r
}

// madeKey answers with a key and its secret.
func (a *app) madeKey(k *tonbo.APIKey) error {
	v := view.KeyOf(k)
	return a.answer(v, func(w io.Writer) {
		fmt.Fprintf(w, "id\t%s\n", v.ID)
		fmt.Fprintf(w, "name\t%s\n", plain(v.Name))
		fmt.Fprintf(w, "role\t%s\n", v.Role)
		fmt.Fprintf(w, "acts as\t%s\n", plain(v.Identity.ID))
		fmt.Fprintf(w, "reaches\t%s\n", plain(reach(v)))
		fmt.Fprintf(w, "expires\t%s\n", v.ExpiresAt)
		fmt.Fprintf(w, "secret\t%s\tthis is the only time that it is shown\n", v.Secret)
	})
}

func (a *app) apiKey() *cobra.Command {
	cmd := group(&cobra.Command{Use: "api-key", Short: "Keys of a server: --url https://..., and in $TONBO_API_KEY one that may make others"})
	cmd.AddCommand(a.createKey(), a.listKeys(), a.rotateKey(), a.revokeKey())
	return cmd
}

func (a *app) keys() (*tonbo.Keys, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	return c.Keys(), nil
}

func (a *app) createKey() *cobra.Command {
	var o tonbo.KeyOptions
	var ttl duration
	var expires string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a key, and show its secret this once",
		Long:  `Make a key, and show its secret this once. Without --database and --database-prefix it reaches every database of the account and may create and delete them, as far as the key in $TONBO_API_KEY may.`,
		Example: "  tonbo api-key create run-sandboxes --database-prefix run-\n" +
			"  tonbo api-key create run-42-sandbox --database run-42 --ttl 1d\n" +
			"  tonbo api-key create first --agent orchestrator --role member",
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name, o.TTL = args[0], time.Duration(ttl)
			if expires != "" {
				at, err := time.Parse(time.RFC3339, expires)
				if err != nil {
					return usagef("--expires-at %q: want a time such as 2026-12-31T00:00:00Z", expires)
				}
				o.ExpiresAt = at
			}
			k, err := a.keys()
			if err != nil {
				return err
			}
			made, err := k.Create(cmd.Context(), o)
			if err != nil {
				return err
			}
			return a.madeKey(made)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Databases, "database", nil, "narrow it to this database, which need not exist yet; can be given several times")
	f.StringSliceVar(&o.Prefixes, "database-prefix", nil, "narrow it to databases whose names begin with this; can be given several times")
	f.BoolVar(&o.ReadOnly, "read-only", false, "it writes nothing")
	f.StringVar(&o.Role, "role", "", "owner, admin or member (default: that of the key that makes it; of an agent or user member)")
	f.StringVar(&o.Agent, "agent", "", "the key is this agent's, not one's own")
	f.StringVar(&o.User, "user", "", "the key is this user's, not one's own")
	f.Var(&ttl, "ttl", "it expires so long from now: 1h, 7d")
	f.StringVar(&expires, "expires-at", "", "it expires at this time: 2026-12-31T00:00:00Z")
	cmd.MarkFlagsMutuallyExclusive("ttl", "expires-at")
	cmd.MarkFlagsMutuallyExclusive("agent", "user")
	return cmd
}

func (a *app) listKeys() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List keys, without their secrets",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := a.keys()
			if err != nil {
				return err
			}
			t := table(a.stdout)
			if !a.json {
				fmt.Fprintln(t, "ID\tNAME\tSTATE\tROLE\tACTS AS\tREACHES\tEXPIRES")
			}
			for key, err := range k.List(cmd.Context()) {
				if err != nil {
					return err
				}
				v := view.KeyOf(key)
				if a.json {
					if err := encode(a.stdout, v); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.ID, plain(v.Name), v.State, v.Role, plain(v.Identity.ID), plain(reach(v)), v.ExpiresAt)
			}
			return t.Flush()
		},
	}
}

func (a *app) rotateKey() *cobra.Command {
	return &cobra.Command{
		Use:   "rotate ID",
		Short: "Give a key another secret; the old one is refused at once",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := a.keys()
			if err != nil {
				return err
			}
			made, err := k.Rotate(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.madeKey(made)
		},
	}
}

func (a *app) revokeKey() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "End a key",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := a.keys()
			if err != nil {
				return err
			}
			if err := k.Revoke(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.answer(map[string]string{"id": args[0], "state": "revoked"}, func(w io.Writer) { fmt.Fprintf(w, "%s is revoked\n", args[0]) })
		},
	}
}
