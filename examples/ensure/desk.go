package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/child"
	"github.com/tonbo-go/tonbo/examples/internal/show"
)

// message is one that a customer has sent.
type message struct {
	ID, Customer string
	Text, About  string // About is where the answer comes from
}

// event is a line that a process writes.
type event struct {
	Message  string
	Reply    string
	Answered bool   // here and now, and not before or elsewhere
	Database string // the customer's
	Created  bool   // by this process, just now
	Session  string
	Done     bool
}

// desk answers messages, with one database for each customer.
type desk struct {
	instances *tonbo.Instances
	open      map[string]*tonbo.Instance // by key: kept open, since a customer writes again
}

// migrate makes the tables of a customer's database. It runs once for each database, whichever process comes first.
func migrate(ctx context.Context, tx *sql.Tx, from string) error {
	_, err := tx.ExecContext(ctx, `CREATE TABLE messages(id TEXT, question TEXT, answer TEXT)`)
	return err
}

// answer answers a message. When it returns nil, the customer's database holds question and answer, and the remote holds the database.
func (d *desk) answer(ctx context.Context, m message) (event, error) {
	created := false
	for {
		// (1) The customer's database. Another process may have taken it over since we last had it: then it is taken back.
		in, err := d.instances.Ensure(ctx, m.Customer, tonbo.EnsureOptions{Version: "desk-v1", Migrate: migrate})
		if errors.Is(err, tonbo.ErrFenced) { // they are busy with it
			continue
		}
		if err != nil {
			return event{}, err
		}
		if had := d.open[m.Customer]; had != nil {
			had.DB.Close() // one of two leases on the same handle
		}
		d.open[m.Customer] = in
		created = created || in.Started == tonbo.Created
		// (2) The answer, once for the message's id.
		s, err := in.DB.Step(ctx, "support", m.ID, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			var before int
			if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM messages`).Scan(&before); err != nil {
				return nil, err
			}
			reply := fmt.Sprintf("Answer %d: %s", before+1, show.Clip(m.About, 60)) // what it says depends on what was said before
			_, err := tx.ExecContext(ctx, `INSERT INTO messages VALUES(?, ?, ?)`, m.ID, m.Text, reply)
			return []byte(reply), err
		})
		if errors.Is(err, tonbo.ErrFenced) { // taken over in the middle: it was not answered here
			continue
		}
		if err != nil {
			return event{}, err
		}
		return event{Message: m.ID, Reply: string(s.Result), Answered: !s.Replayed, Database: in.DatabaseID, Created: created, Session: s.Session}, nil
	}
}

// close closes all databases. Those that other processes have taken over have nothing left to ship.
func (d *desk) close() error {
	var errs []error
	for _, in := range d.open {
		if err := in.DB.Close(); !errors.Is(err, tonbo.ErrFenced) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// deskMain is the main function of one of the processes. It reads messages from its file of them.
func deskMain(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	flags := flag.NewFlagSet("desk", flag.ContinueOnError)
	flags.SetOutput(stderr)
	queue := flags.String("queue", "", "file of messages, one JSON value each")
	if err := flags.Parse(args); err != nil {
		return show.ExitUsage
	}
	signal.Ignore(os.Interrupt) // a terminal sends ^C to the whole group; what becomes of this process is its parent's decision
	ctx, cancel := child.Context(stdin)
	defer cancel()
	if err := serve(ctx, *queue, json.NewEncoder(stdout)); err != nil {
		fmt.Fprintln(stderr, err)
		return show.ExitFailed
	}
	return 0
}

// serve answers all messages of a queue.
func serve(ctx context.Context, queue string, tell *json.Encoder) (err error) {
	f, err := os.Open(queue)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := tonbo.NewClient(tonbo.Options{})
	if err != nil {
		return err
	}
	d := &desk{instances: c.Instances(), open: map[string]*tonbo.Instance{}}
	defer func() { err = errors.Join(err, d.close()) }()
	for dec := json.NewDecoder(f); ; {
		var m message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return tell.Encode(event{Done: true})
		} else if err != nil {
			return fmt.Errorf("%s: %w", queue, err)
		}
		e, err := d.answer(ctx, m)
		if err != nil {
			return fmt.Errorf("message %s of %s: %w", m.ID, m.Customer, err)
		}
		if err := tell.Encode(e); err != nil {
			return err
		}
	}
}
