package main

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// apart is a proxy in a process of its own: what it takes of the processors and of memory is not in what is measured. It ends when its standard input does, so with this process at the latest.
type apart struct {
	line
	addr string
	cmd  *exec.Cmd
	in   io.WriteCloser

	failed func(error) // is told when it does not answer: what is measured then does not count

	mu  sync.Mutex // one question at a time
	ask *gob.Encoder
	get *gob.Decoder
}

// apartArg is the first argument of a process that is a proxy: behind it are where it leads to, the delay and the rate.
const apartArg = "proxy"

// question is what such a process is asked for: what went through, or to forget that.
type question struct{ Reset bool }

func startApart(to string, l line, failed func(error)) (*apart, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &apart{line: l, failed: failed, cmd: exec.Command(self, apartArg, to, l.delay.String(), strconv.FormatFloat(l.rate, 'g', -1, 64))}
	a.cmd.Stderr = os.Stderr
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	a.ask, a.get = gob.NewEncoder(a.in), gob.NewDecoder(out)
	if err := a.get.Decode(&a.addr); err != nil {
		a.close()
		return nil, fmt.Errorf("the proxy did not start: %w", err)
	}
	return a, nil
}

func (a *apart) endpoint() string { return a.addr }

// close ends the process, and every connection through it.
func (a *apart) close() {
	if err := errors.Join(a.in.Close(), a.cmd.Wait()); err != nil {
		a.failed(err)
	}
}

func (a *apart) answer(q question) (log []request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.ask.Encode(q)
	if err == nil {
		err = a.get.Decode(&log)
	}
	if err != nil {
		a.failed(err)
	}
	return log
}

// reset forgets what went through.
func (a *apart) reset() { a.answer(question{Reset: true}) }

// traffic sums up what went through since reset.
func (a *apart) traffic() traffic { return sum(a.answer(question{})) }

// beApart is what such a process does, with the arguments behind apartArg.
func beApart(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%s: %d arguments, want where to, delay and rate", apartArg, len(args))
	}
	delay, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	rate, err := strconv.ParseFloat(args[2], 64)
	if err != nil {
		return err
	}
	p, err := startProxy(args[0], line{delay, rate})
	if err != nil {
		return err
	}
	defer p.close()
	asked, answer := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	if err := answer.Encode(p.endpoint()); err != nil {
		return err
	}
	for {
		var q question
		if err := asked.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		log := p.passed()
		if q.Reset {
			p.reset()
			log = nil
		}
		if err := answer.Encode(log); err != nil {
			return err
		}
	}
}
