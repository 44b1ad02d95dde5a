package tonbo_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"runtime"
	"strings"
	"time"
)

// soakAgent is an agent's process.
type soakAgent struct {
	l      *soakLife
	m      *soakMachine
	db     *soakDB
	cmd    *osexec.Cmd
	events chan event // closed at its end
	all    []event    // that were taken from the channel
	acked  int        // the last transaction that it had acknowledged when sofar was called
	trace  lastLines
	killed bool
}

// sofar takes in what was said until now.
func (p *soakAgent) sofar() {
	for {
		select {
		case e, more := <-p.events:
			if more {
				p.all = append(p.all, e)
				continue
			}
		default:
		}
		break
	}
	for _, e := range p.all {
		if e.What == "ack" || e.What == "label" {
			p.acked = max(p.acked, e.Seq)
		}
	}
}

// lastLines keeps the end of what was written.
type lastLines struct{ b []byte }

func (t *lastLines) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-1<<16):]
	return len(b), nil
}

// start starts an agent for a database on a machine.
func (l *soakLife) start(db *soakDB, m *soakMachine, j job) *soakAgent {
	j.Name, j.URL, j.Dir = db.name, l.url, m.dir
	raw, jerr := json.Marshal(j)
	exe, err := os.Executable()
	if err = errors.Join(jerr, err); err != nil {
		l.t.Error("start an agent: ", err)
		runtime.Goexit()
	}
	p := &soakAgent{l: l, m: m, db: db, cmd: osexec.Command(exe), events: make(chan event, 1<<10)}
	p.cmd.Env = append(append(os.Environ(), l.env...), jobEnv+"="+string(raw), "TONBO_FAULT=", "GOMAXPROCS=2")
	p.cmd.Stderr = &p.trace
	out, err := p.cmd.StdoutPipe()
	if err = errors.Join(err, p.cmd.Start()); err != nil {
		l.t.Error("start an agent: ", err)
		runtime.Goexit()
	}
	l.agents.Add(1)
	go func() { // until the process ends; whoever reads the events waits for that
		defer close(p.events)
		eachEvent(out, func(e event) { p.events <- e })
		_ = p.cmd.Wait() // it may have been killed; what it says at its end tells more
	}()
	return p
}

// until takes in what the agent says, until it says that. ok is false when it ends before.
func (p *soakAgent) until(what string) (ok bool) {
	timeout := time.NewTimer(3 * time.Minute)
	defer timeout.Stop()
	for {
		select {
		case e, more := <-p.events:
			if !more {
				return false
			}
			if p.all = append(p.all, e); e.What == what {
				return true
			}
		case <-timeout.C:
			p.l.broken("%s: an agent neither says %s nor ends: %v\n%s", p.db.name, what, p.last(), p.trace.b)
			p.kill()
			return false
		}
	}
}

// drain waits for the end.
func (p *soakAgent) drain() { p.until("") }

// kill kills the agent, and waits until it is gone.
func (p *soakAgent) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	for e := range p.events {
		p.all = append(p.all, e)
	}
	if p.heard("done") == nil && !p.killed {
		p.killed = true
		p.l.killed.Add(1)
	}
}

// killAtAnyTime kills it while it starts, opens or works, or as it closes.
func (p *soakAgent) killAtAnyTime() {
	if rand.IntN(4) > 0 && (p.heard("open") != nil || p.until("open")) {
		for range rand.IntN(6) {
			p.until([]string{"try", "commit", "ack"}[rand.IntN(3)])
		}
	}
	time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
	p.kill()
}

// heard returns the first event of a kind, nil when there was none.
func (p *soakAgent) heard(what string) *event {
	for i := range p.all {
		if p.all[i].What == what {
			return &p.all[i]
		}
	}
	return nil
}

// last is the last of what was said.
func (p *soakAgent) last() string {
	var b strings.Builder
	for _, e := range p.all[max(0, len(p.all)-12):] {
		fmt.Fprintf(&b, "%s %d.%d %s%s; ", e.What, e.Seq, e.Gen, e.Path, e.Err)
	}
	return b.String()
}
