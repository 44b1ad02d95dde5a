package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/show"
)

// readOnly opens a database at its head for as long as fn runs. It takes nothing over and works on a frozen database as well.
func (s *story) readOnly(ctx context.Context, name string, fn func(*tonbo.DB) error) (err error) {
	db, err := tonbo.OpenReadOnly(ctx, name, s.Machine("examiner"))
	if err != nil {
		return err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	return fn(db)
}

// findingsOf counts an agent's findings in a database, and those of others.
func findingsOf(ctx context.Context, db *sql.DB, agent int) (own, others int, err error) {
	err = db.QueryRowContext(ctx, "SELECT count(*) FILTER (WHERE agent = ?1), count(*) FILTER (WHERE agent <> ?1) FROM findings", agent).Scan(&own, &others)
	return own, others, err
}

// examine reads every fork from the remote, and the golden, and compares them with what the agents said.
func (s *story) examine(ctx context.Context) error {
	began, kept, own := "", "", "" // what is wrong, if something is
	for i, a := range s.agents {
		err := s.readOnly(ctx, a.fork, func(db *tonbo.DB) error {
			sum, symbols, err := digest(ctx, db.DB)
			if err != nil {
				return err
			}
			mine, others, err := findingsOf(ctx, db.DB, a.number)
			if err != nil {
				return err
			}
			if a.began != s.golden.digest {
				began = fmt.Sprintf("%s began with other rows", a.fork)
			}
			if sum != s.golden.digest || symbols != s.golden.symbols {
				kept = fmt.Sprintf("%s has %d symbols, the golden %d, or they differ", a.fork, symbols, s.golden.symbols)
			}
			if mine != a.findings || others != 0 {
				own = fmt.Sprintf("%s has %d findings of its agent, which wrote %d, and %d of others", a.fork, mine, a.findings, others)
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.out.Step(i+1, len(s.agents), "examined %s", a.fork)
	}
	n := len(s.agents)
	s.out.Check(fmt.Sprintf("each of %d forks began with exactly the golden's rows", n), began == "", "%s", began)
	s.out.Check(fmt.Sprintf("each of %d forks still has them, in the remote", n), kept == "", "%s", kept)
	s.out.Check(fmt.Sprintf("each of %d forks has its own agent's rows, all of them, and no other's", n), own == "", "%s", own)
	worst, largest := int64(0), int64(0)
	for _, a := range s.agents {
		worst, largest = max(worst, show.Requests(a.forkCost)), max(largest, a.forkCost.BytesUp+a.forkCost.BytesDown)
	}
	s.out.Check("a fork costs at most 8 requests and 16 KiB", worst <= 8 && largest < 16<<10, "%d requests, %d bytes", worst, largest)
	return s.untouched(ctx, "after the agents")
}

// untouched checks that the golden is as it was.
func (s *story) untouched(ctx context.Context, when string) error {
	d, err := s.client.Get(ctx, s.golden.name)
	if err != nil {
		return err
	}
	s.out.Check(when+", the golden's log has no entry more", d.Head.Slot == s.golden.head.Slot && d.Frozen, "its head is slot %d, was %d", d.Head.Slot, s.golden.head.Slot)
	return s.readOnly(ctx, s.golden.name, func(db *tonbo.DB) error {
		sum, _, err := digest(ctx, db.DB)
		if err != nil {
			return err
		}
		var findings int
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM findings").Scan(&findings); err != nil {
			return err
		}
		s.out.Check(when+", the golden has its rows and no finding", sum == s.golden.digest && findings == 0, "%d findings, or other rows", findings)
		return nil
	})
}

// winner is the agent with most findings.
func (s *story) winner() *agent {
	best := s.agents[0]
	for _, a := range s.agents {
		if a.findings > best.findings {
			best = a
		}
	}
	return best
}

// promote makes the best fork the next golden. There is no merge and no copy: a frozen fork of it, at the point that was acknowledged, gets the name that
// comes next. Then all agents' forks are deleted, the promoted one's too: what the new golden stands on stays.
func (s *story) promote(ctx context.Context) error {
	a, next := s.winner(), s.Name+".v2"
	_, err := s.client.Fork(ctx, a.fork, next, tonbo.ForkOptions{
		CreateOptions: tonbo.CreateOptions{Frozen: true, Metadata: map[string]string{"agent": strconv.Itoa(a.number), "before": s.golden.name}},
		At:            a.point,
	})
	if err != nil {
		return err
	}
	for _, a := range s.agents {
		if err := s.client.Delete(ctx, a.fork); err != nil {
			return err
		}
	}
	s.out.Say("agent %d's fork is promoted: %s begins as it was at %q; the %d agents' forks are deleted", a.number, next, a.point.Label, len(s.agents))
	err = s.readOnly(ctx, next, func(db *tonbo.DB) error {
		sum, _, err := digest(ctx, db.DB)
		if err != nil {
			return err
		}
		own, others, err := findingsOf(ctx, db.DB, a.number)
		if err != nil {
			return err
		}
		s.out.Check("the next golden has the golden's rows and the promoted agent's", sum == s.golden.digest && own == a.findings && others == 0,
			"%d findings of the agent, want %d, and %d of others, or other rows", own, a.findings, others)
		var integrity string
		if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&integrity); err != nil {
			return err
		}
		s.out.Check("integrity_check of the next golden", integrity == "ok", "%s", integrity)
		return s.samples(ctx, db.DB)
	})
	if err != nil {
		return err
	}
	// The next generation of agents forks it.
	if _, err := s.client.Fork(ctx, next, next+".agent-1", tonbo.ForkOptions{}); err != nil {
		return err
	}
	if err := s.client.Delete(ctx, next+".agent-1"); err != nil {
		return err
	}
	return s.untouched(ctx, "after the promotion")
}

// samples shows some of what the promoted agent found.
func (s *story) samples(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT package, name, quote FROM findings JOIN symbols ON symbols.id = symbol GROUP BY package ORDER BY count(*) DESC, package LIMIT 5")
	if err != nil {
		return err
	}
	defer rows.Close()
	table := [][]string{{"package", "name", "doc"}}
	for rows.Next() {
		var pkg, name, quote string
		if err := rows.Scan(&pkg, &name, &quote); err != nil {
			return err
		}
		table = append(table, []string{pkg, name, show.Clip(quote, 76)})
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return s.out.Table("some of what was promoted", false, table)
}

// tables shows what each fork cost.
func (s *story) tables(context.Context) error {
	best := s.winner()
	rows := [][]string{{"agent", "hazard", "findings", "fork", "requests", "sent", "read", "first row", "requests", "read", "own writes: requests", "sent", ""}}
	var forks, opens, works tonbo.Requests
	for _, a := range s.agents {
		mark := "deleted"
		if a == best {
			mark = "promoted"
		}
		f, o, w := a.forkCost, a.openCost, a.workCost
		rows = append(rows, []string{strconv.Itoa(a.number), a.hazard, strconv.Itoa(a.findings),
			fmt.Sprint(a.forkTime.Milliseconds(), " ms"), fmt.Sprint(show.Requests(f)), show.Bytes(f.BytesUp), show.Bytes(f.BytesDown),
			fmt.Sprint(a.openTime.Milliseconds(), " ms"), fmt.Sprint(show.Requests(o)), show.Bytes(o.BytesDown),
			fmt.Sprint(show.Requests(w)), show.Bytes(w.BytesUp), mark})
		forks, opens, works = plus(forks, f), plus(opens, o), plus(works, w)
	}
	rows = append(rows, []string{"all", "", "", "", fmt.Sprint(show.Requests(forks)), show.Bytes(forks.BytesUp), show.Bytes(forks.BytesDown),
		"", fmt.Sprint(show.Requests(opens)), show.Bytes(opens.BytesDown), fmt.Sprint(show.Requests(works)), show.Bytes(works.BytesUp), ""})
	if err := s.out.Table("what each fork cost", true, rows); err != nil {
		return err
	}
	s.out.Say("fork: the time and cost of Fork; first row: of a cold start on a machine with nothing, from the call of Open, twenty at once; own writes: of the Checkpoint")
	s.out.Say("%d copies of the golden would have been %s to send; the forks and all their writes were %s", len(s.agents),
		show.Bytes(int64(len(s.agents))*s.golden.cost.BytesUp), show.Bytes(forks.BytesUp+works.BytesUp))
	return nil
}

func plus(a, b tonbo.Requests) tonbo.Requests {
	return less(a, less(tonbo.Requests{}, b))
}
