package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/child"
	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/examples/internal/stdlib"
)

type options struct {
	url, prefix, goroot            string
	processes, customers, messages int
}

// office delivers the messages to the processes, and remembers what they said.
type office struct {
	options
	*show.Stage
	out      *show.Show
	messages []message

	created   map[string]int             // by customer: who said that they made its database
	databases map[string]map[string]bool // by customer
	answered  map[string]int             // by message
	replies   map[string]map[string]bool // by message
	told      int
}

// open is the whole run.
func open(ctx context.Context, o options, out *show.Show) (err error) {
	s := &office{options: o, out: out, created: map[string]int{}, databases: map[string]map[string]bool{}, answered: map[string]int{}, replies: map[string]map[string]bool{}}
	source, err := stdlib.Find(ctx, o.goroot)
	if err != nil {
		return err
	}
	if s.Stage, err = show.NewStage("customer", o.url, o.prefix); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.End()) }()
	if err := s.write(ctx, source); err != nil {
		return err
	}
	s.out.Say("%d messages of %d customers, each delivered to all %d processes", len(s.messages), s.customers, s.processes)
	if err := s.deliver(ctx); err != nil {
		return err
	}
	return s.examine(ctx)
}

// write makes up the messages.
func (s *office) write(ctx context.Context, source stdlib.Source) error {
	packages, err := source.Packages(0)
	if err != nil {
		return err
	}
	found := 0
	for _, path := range packages {
		if found == s.customers {
			break
		}
		api, err := source.Extract(ctx, path)
		if err != nil {
			return err
		}
		n := 0
		for _, sym := range api.Symbols {
			if sym.Kind != "func" || sym.Doc == "" || n == s.options.messages {
				continue
			}
			n++
			s.messages = append(s.messages, message{
				ID: path + "." + sym.Name, Customer: s.Name + ":" + strings.ReplaceAll(path, "/", "."), Text: fmt.Sprintf("What does %s do?", sym.Name), About: sym.Doc,
			})
		}
		if n > 0 {
			found++
		}
	}
	s.customers = found
	return nil
}

// deliver starts the processes and takes in what they say.
func (s *office) deliver(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	events := make(chan event)
	for n := 1; n <= s.processes; n++ {
		queue := filepath.Join(s.Dir, fmt.Sprintf("queue-%d", n))
		if err := s.queue(queue); err != nil {
			return err
		}
		g.Go(func() error {
			p, err := child.Start[event](gctx, fmt.Sprintf("process %d", n), filepath.Join(s.Dir, "process-"+strconv.Itoa(n)), s.URL, len(s.messages)+1, "desk", "--queue", queue)
			if err != nil {
				return err
			}
			defer p.End()
			for {
				e, err := p.Next(gctx)
				if err != nil {
					return err
				}
				if e.Done {
					return p.Stop()
				}
				select {
				case events <- e:
				case <-gctx.Done():
					return gctx.Err()
				}
			}
		})
	}
	var err error
	go func() { err = g.Wait(); close(events) }() // the channel's end is seen below
	for e := range events {
		s.note(e)
	}
	return err
}

// queue writes a queue: all messages, in an order of its own.
func (s *office) queue(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(f)
	for _, i := range rand.Perm(len(s.messages)) {
		if err := enc.Encode(s.messages[i]); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// note takes in what a process said.
func (s *office) note(e event) {
	s.told++
	customer, _, _ := strings.Cut(e.Message, ".")
	if s.databases[customer] == nil {
		s.databases[customer] = map[string]bool{}
	}
	s.databases[customer][e.Database] = true
	if e.Created {
		s.created[customer]++
	}
	if s.replies[e.Message] == nil {
		s.replies[e.Message] = map[string]bool{}
	}
	s.replies[e.Message][e.Reply] = true
	if e.Answered {
		s.answered[e.Message]++
	}
	s.out.Step(s.told, len(s.messages)*s.processes, "%s: %s", e.Message, e.Reply)
}

// examine checks what was promised.
func (s *office) examine(ctx context.Context) error {
	one := func(what string, n int, counts func(key string) int, keys []string) {
		var wrong []string
		for _, k := range keys {
			if c := counts(k); c != 1 {
				wrong = append(wrong, fmt.Sprintf("%s: %d", k, c))
			}
		}
		s.out.Check(what, len(wrong) == 0 && len(keys) == n, "%d of %d: %v", len(keys), n, wrong)
	}
	var customers, messages []string
	for c := range s.databases {
		customers = append(customers, c)
	}
	for _, m := range s.messages {
		messages = append(messages, m.ID)
	}
	one("each customer has one database", s.customers, func(c string) int { return len(s.databases[c]) }, customers)
	one("exactly one process made it", s.customers, func(c string) int { return s.created[c] }, customers)
	one("each message was answered by one process", len(s.messages), func(m string) int { return s.answered[m] }, messages)
	one("all processes tell the same answer", len(s.messages), func(m string) int { return len(s.replies[m]) }, messages)

	c, err := tonbo.NewClient(tonbo.Options{URL: s.URL, Dir: filepath.Join(s.Dir, "examiner")})
	if err != nil {
		return err
	}
	n, err := c.Count(ctx, tonbo.Filter{Prefix: s.Name + ":"})
	if err != nil {
		return err
	}
	s.out.Check("the remote has as many databases as there are customers", n == s.customers, "%d, want %d", n, s.customers)
	u := new(tonbo.Usage)
	for d, err := range c.List(ctx, tonbo.Filter{Prefix: s.Name + ":", NamesOnly: true}) {
		if err != nil {
			return err
		}
		one, err := c.Usage(ctx, d.Name)
		if err != nil {
			return err
		}
		u.Opens, u.Commits, u.StoredBytes = u.Opens+one.Opens, u.Commits+one.Commits, u.StoredBytes+one.StoredBytes
	}
	s.out.Say("%d databases were opened %d times; %d commits, %s stored", n, u.Opens, u.Commits, show.Bytes(u.StoredBytes))
	return nil
}
