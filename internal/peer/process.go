package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Process is a program that runs until [Process.Stop], or until this process ends.
type Process struct {
	log  string        // file of its output
	stop func()        // ends the process
	gone chan struct{} // closed when it has ended
	err  error         // then: how
	once sync.Once
}

// FreeAddress returns an address of the loopback interface that nobody listens on. Another process may take it before the one that is started does: then start again, with another.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Start runs cmd, with its output in a file, and waits until url answers 200 to a GET.
func Start(ctx context.Context, cmd *exec.Cmd, log, url string) (*Process, error) {
	logFile, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	p := &Process{log: log, gone: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.gone)
		// Linux ends the child when the thread that started it does (Pdeathsig), so this goroutine keeps the thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		stop, err := startTied(cmd)
		p.stop = stop
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		<-p.gone
		return nil, err
	}
	if err := p.answers(ctx, url); err != nil {
		p.Stop()
		text, _ := os.ReadFile(log)
		return nil, fmt.Errorf("%w; its output: %s", err, strings.TrimSpace(string(text)))
	}
	return p, nil
}

// answers waits until the server does.
func (p *Process) answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			err = resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-p.gone:
			return errors.Join(errors.New("the server ended"), p.err)
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", ctx.Err())
		}
	}
}

// Stop ends the process and waits for its end. More calls do nothing.
func (p *Process) Stop() {
	p.once.Do(func() {
		p.stop()
		<-p.gone
	})
}
