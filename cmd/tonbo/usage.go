package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/view"
)

// usage is a tonbo.Usage as --json spells it, and what it costs.
type usage struct {
	view.Usage
	Currency   string `json:"currency,omitempty"`
	Cost       *cost  `json:"cost,omitempty"`
	CostOfRuns *cost  `json:"cost_of_runs,omitempty"` // 30 days of them
}

type cost struct {
	Service bill `json:"service"`
	Bucket  bill `json:"bucket"`
}

type bill struct {
	Requests float64 `json:"requests"`
	Transfer float64 `json:"transfer"`
	Storage  float64 `json:"storage"`
	Total    float64 `json:"total"`
}

func costOf(c tonbo.Cost) *cost {
	of := func(b tonbo.Bill) bill { return bill{b.Requests, b.Transfer, b.Storage, b.Total()} }
	return &cost{of(c.Service), of(c.Bucket)}
}

func (a *app) usage() *cobra.Command {
	var prices string
	var perDay float64
	var kept duration
	cmd := &cobra.Command{
		Use:   "usage [NAME]",
		Short: "Show what a database, or all of the account, has cost",
		Long: `Show what a database has used since it was created, or without a NAME all databases of the account, deleted ones included.

With --price-file it also tells what that costs, by two models: a service that bills write units of 10 KiB, and a bucket that bills requests. With --runs-per-day, what 30 days cost in which so many databases like these are made each day, and each is kept for --kept. docs/operations.md shows a price file.`,
		Example:           "  tonbo usage run-42 --price-file prices.json --runs-per-day 1000 --kept 7d",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.names(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("runs-per-day") && (prices == "" || !(perDay >= 0)) {
				return usagef("--runs-per-day wants a number from 0 on, and a --price-file")
			}
			if cmd.Flags().Changed("kept") && !cmd.Flags().Changed("runs-per-day") {
				return usagef("--kept goes with --runs-per-day")
			}
			var p tonbo.Prices
			if prices != "" {
				var err error
				if p, err = readPrices(prices); err != nil {
					return err
				}
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			c, err := a.client()
			if name != "" {
				c, err = a.about(name)
			}
			if err != nil {
				return err
			}
			u, err := c.Usage(cmd.Context(), name)
			if err != nil {
				return err
			}
			v := usage{Usage: view.UsageOf(u)}
			if prices != "" {
				v.Currency, v.Cost = p.Currency, costOf(u.Cost(p))
			}
			if cmd.Flags().Changed("runs-per-day") {
				v.CostOfRuns = costOf(u.CostOfRuns(p, perDay, time.Duration(kept)))
			}
			return a.answer(v, func(w io.Writer) {
				v.write(w, fmt.Sprintf("%g runs a day, kept %s: 30 days", perDay, time.Duration(kept)))
			})
		},
	}
	cmd.Flags().StringVar(&prices, "price-file", "", "JSON file with prices")
	cmd.Flags().Float64Var(&perDay, "runs-per-day", 0, "also the cost of 30 days with so many such databases made a day")
	kept = duration(24 * time.Hour)
	cmd.Flags().Var(&kept, "kept", "how long each of them is kept")
	return cmd
}

func readPrices(file string) (tonbo.Prices, error) {
	f, err := os.Open(file)
	if err != nil {
		return tonbo.Prices{}, err
	}
	defer f.Close()
	p, err := tonbo.ReadPrices(f)
	if err != nil {
		return p, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

func (u *usage) write(w io.Writer, runs string) {
	fmt.Fprintf(w, "databases\t%d live, %d created\n", u.Databases, u.Creates)
	fmt.Fprintf(w, "opens\t%d\n", u.Opens)
	fmt.Fprintf(w, "commits\t%d\n", u.Commits)
	fmt.Fprintf(w, "write units\t%d\n", u.WriteUnits)
	fmt.Fprintf(w, "requests\t%d put, %d get, %d head, %d list, %d delete\n", u.Requests.Put, u.Requests.Get, u.Requests.Head, u.Requests.List, u.Requests.Delete)
	fmt.Fprintf(w, "transferred\t%s up, %s down\n", size(u.BytesShipped), size(u.BytesFetched))
	fmt.Fprintf(w, "stored\t%s now, %.3g GiB days\n", size(u.StoredBytes), u.StorageByteDays/(1<<30))
	if u.Cost != nil {
		u.Cost.write(w, "so far", u.Currency)
	}
	if u.CostOfRuns != nil {
		u.CostOfRuns.write(w, runs, u.Currency)
	}
}

func (c *cost) write(w io.Writer, what, currency string) {
	fmt.Fprintf(w, "\n%s\trequests\ttransfer\tstorage\ttotal %s\n", what, plain(currency))
	for _, m := range []struct {
		name string
		b    bill
	}{{"a service that bills write units", c.Service}, {"a bucket that bills requests", c.Bucket}} {
		fmt.Fprintf(w, "%s\t%.6g\t%.6g\t%.6g\t%.6g\n", m.name, m.b.Requests, m.b.Transfer, m.b.Storage, m.b.Total)
	}
}
