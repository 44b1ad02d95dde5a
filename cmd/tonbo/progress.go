package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo"
)

// progressLine shows how far long work is: one line of a terminal, rewritten. Without a terminal it shows nothing. Safe for concurrent use; a nil one does nothing.
type progressLine struct {
	w       io.Writer
	visible bool

	mu    sync.Mutex
	shown bool      // there is a line to be removed
	next  time.Time // not before
}

func newProgressLine(w io.Writer, terminal bool) *progressLine {
	return &progressLine{w: w, visible: terminal}
}

const (
	progressEvery = 100 * time.Millisecond
	eraseLine     = "\r\x1b[K"
)

// bytes is for work that is measured in bytes: tonbo.Options.Progress.
func (p *progressLine) bytes(now tonbo.Progress) {
	if now.Total <= 0 {
		p.show(now.Doing, now.Name, size(now.Done), false)
		return
	}
	done := min(now.Done, now.Total) // pages that are replaced by newer ones are counted twice
	p.show(now.Doing, now.Name, fmt.Sprintf("%3d %%  %s of %s", done*100/now.Total, size(done), size(now.Total)), now.Done == now.Total)
}

// databases is for a sweep: tonbo.Janitor.Progress.
func (p *progressLine) databases(now tonbo.Progress) {
	p.show(now.Doing, now.Name, fmt.Sprintf("%d of %d", now.Done, now.Total), now.Done == now.Total)
}

// show rewrites the line, not too often, but always for the last time.
func (p *progressLine) show(doing, name, far string, last bool) {
	if p == nil || !p.visible {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.next) && !last {
		return
	}
	p.next, p.shown = now.Add(progressEvery), true
	fmt.Fprintf(p.w, "%s%s  %s  %.60s", eraseLine, doing, far, name)
}

// clear removes the line, before something else is written.
func (p *progressLine) clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		io.WriteString(p.w, eraseLine)
	}
	p.shown = false
}

// above returns a writer to the same terminal for whole lines.
func (p *progressLine) above() io.Writer { return aboveWriter{p} }

type aboveWriter struct{ p *progressLine }

func (a aboveWriter) Write(b []byte) (int, error) {
	a.p.clear()
	return a.p.w.Write(b)
}
