package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/view"
)

// sweep is a tonbo.SweepReport as --json spells it.
type sweep struct {
	At        view.Stamp `json:"at"`
	DryRun    bool       `json:"dry_run"`
	Complete  bool       `json:"complete"`  // it came to its end
	Databases int        `json:"databases"` // that remain, when it is complete
	TooMany   bool       `json:"too_many"`
	Done      []swept    `json:"done"`
	Kept      []string   `json:"kept"`
	Collected collected  `json:"collected"`
	Keys      int        `json:"idempotency_keys"`
	Local     int        `json:"local_copies"` // that scratch databases left in --dir
	Failed    []string   `json:"failed"`
}

type swept struct {
	Name string `json:"name"`
	ID   string `json:"id"`
	Why  string `json:"why"`
}

type collected struct {
	Slots    int   `json:"slots"`
	Segments int   `json:"segments"`
	Bases    int   `json:"bases"`
	Pins     int   `json:"pins"`
	Records  int   `json:"records"`
	Bytes    int64 `json:"bytes"`
	Denied   int   `json:"denied"`
}

func sweepOf(r *tonbo.SweepReport, dry, complete bool) sweep {
	c := r.Collected
	s := sweep{
		At: view.Stamp(time.Now()), DryRun: dry, Complete: complete, Databases: r.Databases, TooMany: r.TooMany, Done: []swept{}, Kept: append([]string{}, r.Kept...), Keys: r.Keys, Local: r.Local, Failed: []string{},
		Collected: collected{c.Slots, c.Segments, c.Bases, c.Pins, c.Records, c.Bytes, c.Denied},
	}
	for _, d := range r.Done {
		s.Done = append(s.Done, swept{d.Name, d.ID, d.Why})
	}
	for _, err := range r.Failed {
		s.Failed = append(s.Failed, err.Error())
	}
	return s
}

func (s *sweep) write(w io.Writer) {
	would := ""
	if s.DryRun {
		would = "would be "
	}
	for _, d := range s.Done {
		fmt.Fprintf(w, "%s\t%s%s\n", d.Name, would, d.Why)
	}
	for _, name := range s.Kept {
		fmt.Fprintf(w, "%s\tkept\n", name)
	}
	for _, f := range s.Failed {
		fmt.Fprintf(w, "failed\t%s\n", plain(oneLine(f)))
	}
	c := s.Collected
	left := "cut short"
	if s.Complete {
		left = several(s.Databases, "database") + " left"
	}
	fmt.Fprintf(w, "%s: %s; %scollected: %s, %s, %s, %s, %s, %s; %s\n", s.At, left, would,
		several(c.Slots, "slot"), several(c.Segments, "segment"), several(c.Bases, "base"), several(c.Pins, "pin"), several(c.Records, "record"), several(s.Keys, "idempotency key"), size(c.Bytes))
	if s.Local > 0 {
		fmt.Fprintf(w, "%s of scratch databases whose processes have died: %sremoved\n", several(s.Local, "local folder"), would)
	}
	if c.Denied > 0 {
		fmt.Fprintf(w, "the store refused %s: run it with a key that may delete\n", several(c.Denied, "deletion"))
	}
}

func (a *app) janitor() *cobra.Command {
	var j tonbo.Janitor
	var metadata pairs
	var olderThan, grace, every duration
	cmd := &cobra.Command{
		Use:   "janitor",
		Short: "Delete what has expired, and tidy up behind everything",
		Long: `Delete databases that have expired, finish what was interrupted, let go of what nothing needs, and compact databases that nobody has open. With --older-than also delete databases that never expire, were created longer ago than that and have been quiet for as long; that needs --prefix or --metadata. Protected databases stay.

Run it on a schedule, or with --every, with a key that may delete. Any number may run at once. What fails for one database is tried again by the next sweep; a single sweep then exits with 1, and with 3 when more than --max databases remain. With --every it goes on whatever happens, and says so on stderr, until it is interrupted: then it exits with 0.`,
		Example: "  tonbo janitor --every 15m\n  tonbo janitor --metadata kind=agent-scratch-db --older-than 24h --dry-run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("max") && j.Max < 1 || j.Parallel < 0 {
				return usagef("--max and --parallel want a number from 1 on")
			}
			j.Metadata, j.OlderThan, j.Grace, j.Progress = metadata, time.Duration(olderThan), time.Duration(grace), a.progress.databases
			c, err := a.client()
			if err != nil {
				return err
			}
			if every == 0 {
				return a.sweep(cmd.Context(), c, j)
			}
			return a.sweepEvery(cmd.Context(), c, j, time.Duration(every))
		},
	}
	f := cmd.Flags()
	f.StringVar(&j.Prefix, "prefix", "", "only databases whose names begin with this")
	f.Var(&metadata, "metadata", "only databases with this pair; can be given several times")
	f.Var(&olderThan, "older-than", "also delete those that never expire, and are older and have been quiet for longer than this: 24h, 7d")
	f.BoolVar(&j.DryRun, "dry-run", false, "change nothing, and tell what would be done")
	f.Var(&every, "every", "sweep now and then again and again, this long after the last one began: 15m")
	f.IntVar(&j.Max, "max", 0, "exit with 3 when more databases than this remain")
	f.Var(&grace, "grace", "how long a creation may take, and garbage stays (default 1h)")
	f.IntVar(&j.Parallel, "parallel", 0, "databases at once (default 8)")
	f.BoolVar(&j.NoCompact, "no-compact", false, "do not compact databases that nobody has open")
	f.BoolVar(&j.NoCollect, "no-collect", false, "do not collect garbage")
	return cmd
}

// sweep does one sweep, and answers with its report.
func (a *app) sweep(ctx context.Context, c *tonbo.Client, j tonbo.Janitor) error {
	r, err := c.Sweep(ctx, j)
	if errors.Is(err, tonbo.ErrInvalid) {
		return err // nothing was looked at
	}
	s := sweepOf(r, j.DryRun, err == nil)
	if aerr := a.answer(s, s.write); aerr != nil {
		return errors.Join(err, aerr)
	}
	switch {
	case err != nil:
		return err
	case r.TooMany:
		return &thresholdError{n: r.Databases, most: j.Max, of: " left"}
	case len(r.Failed) > 0:
		return fmt.Errorf("%s not swept, the next sweep tries again; the first: %v", several(len(r.Failed), "database"), r.Failed[0])
	}
	return nil
}

// sweepEvery sweeps until ctx ends, which is how it is stopped: no error.
func (a *app) sweepEvery(ctx context.Context, c *tonbo.Client, j tonbo.Janitor, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := a.sweep(ctx, c, j)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, tonbo.ErrInvalid):
			return err
		case err != nil:
			_, code, message := a.outcome(ctx, err)
			a.complain(code, message, nil)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
