package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo"
)

func (a *app) verify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify NAME",
		Short: "Check that everything a database stands on is whole",
		Long: `Read everything that a database stands on, from the oldest restorable entry to the head, and check it: the chain of the log, checksums of all blocks, every base against the log, and SQLite's integrity_check of the head. It takes nothing over.

It exits with 1 when an object is missing or damaged, and names it.`,
		Args:              exactly(1),
		ValidArgsFunction: a.names(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.about(args[0])
			if err != nil {
				return err
			}
			r, err := c.Verify(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			type problem struct {
				Key   string `json:"key"`
				Error string `json:"error"`
			}
			v := struct {
				Name     string    `json:"name"`
				OK       bool      `json:"ok"`
				Entries  int       `json:"entries"`
				Segments int       `json:"segments"`
				Bases    int       `json:"bases"`
				Bytes    int64     `json:"bytes"`
				Problems []problem `json:"problems"`
			}{args[0], r.OK(), r.Entries, r.Segments, r.Bases, r.Bytes, []problem{}}
			for _, p := range r.Problems {
				v.Problems = append(v.Problems, problem{p.Key, p.Err.Error()})
			}
			err = a.answer(v, func(w io.Writer) {
				fmt.Fprintf(w, "read\t%s, %s, %s, %s\n", several(v.Entries, "slot"), several(v.Segments, "segment"), several(v.Bases, "base"), size(v.Bytes))
				if v.OK {
					fmt.Fprintln(w, "all is whole")
				}
				for _, p := range v.Problems {
					fmt.Fprintf(w, "%s\t%s\n", p.Key, plain(oneLine(p.Error)))
				}
			})
			if err != nil {
				return err
			}
			if !r.OK() {
				return fmt.Errorf("database %s: %w: %s missing or not right: get it back from a version, replica or backup", args[0], tonbo.ErrCorrupt, several(len(r.Problems), "object"))
			}
			return nil
		},
	}
}
