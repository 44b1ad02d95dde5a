package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// line is what lies between a program and the store. The zero value is the loopback interface as it is.
type line struct {
	delay time.Duration // added to each request
	rate  float64       // bytes a second, each way, all connections together; 0: not bounded
}

func (l line) String() string {
	s := fmt.Sprintf("%d ms", l.delay.Milliseconds())
	if l.rate > 0 {
		s += fmt.Sprintf(", %.0f MB/s", l.rate/1e6)
	}
	return s
}

// proxy passes HTTP/1.1 messages on as they are (signatures cover them), and takes each request down. Bodies with a length go from socket to socket inside the
// kernel, so that the proxy costs little beside what is measured.
type proxy struct {
	line
	to    string // host:port
	l     net.Listener
	ctx   context.Context
	stop  context.CancelFunc
	conns sync.WaitGroup

	up, down pace

	mu   sync.Mutex
	log  []request
	open int // requests that have begun and are not in the log
}

// request is one that the proxy has passed on.
type request struct {
	Kind       string // PUT, GET, LIST, HEAD, POST, DELETE
	Path       string
	Status     int
	Up, Down   int64 // bytes of bodies
	Begin, End time.Time
}

// passing is a request on its way: its body and its answer are passed on by two goroutines.
type passing struct {
	request
	sent, got atomic.Int64
	whole     chan struct{} // closed when its body has gone up, or will not
	next      time.Time     // when the next one on the connection began, zero: not yet; guarded by proxy.mu
}

func startProxy(to string, l line) (*proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{line: l, to: strings.TrimPrefix(to, "http://"), l: ln, up: pace{rate: l.rate}, down: pace{rate: l.rate}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.conns.Add(1)
	go p.accept()
	return p, nil
}

func (p *proxy) endpoint() string { return "http://" + p.l.Addr().String() }

// close ends every connection and waits for it.
func (p *proxy) close() {
	p.stop()
	p.l.Close()
	p.conns.Wait()
}

func (p *proxy) accept() {
	defer p.conns.Done()
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.conns.Add(1)
		go func() {
			defer p.conns.Done()
			defer c.Close()
			p.serve(c.(*net.TCPConn))
		}()
	}
}

// serve passes one connection's messages on, until either side ends it.
func (p *proxy) serve(client *net.TCPConn) {
	c, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", p.to)
	if err != nil {
		return
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	defer context.AfterFunc(p.ctx, func() { client.Close(); server.Close() })()
	asked := make(chan *passing, 1)
	var w sync.WaitGroup
	w.Add(1)
	go func() {
		defer w.Done()
		defer client.Close() // the other half is waiting for it
		p.answers(server, client, asked)
	}()
	p.requests(client, server, asked)
	close(asked)
	server.CloseWrite()
	w.Wait()
}

// requests passes requests on, one after the other: an HTTP/1.1 client waits for the answer.
func (p *proxy) requests(client, server *net.TCPConn, asked chan<- *passing) {
	r := bufio.NewReaderSize(client, 16<<10)
	last := &passing{}
	for {
		h, err := readHead(r)
		if err != nil {
			return
		}
		q := &passing{request: request{Kind: kindOf(h), Path: h.target}, whole: make(chan struct{})}
		p.mu.Lock()
		q.Begin = time.Now()
		p.open++
		last.next = q.Begin
		p.mu.Unlock()
		last = q
		if !p.wait(p.delay) {
			return
		}
		select {
		case asked <- q:
		case <-p.ctx.Done():
			return
		}
		_, err = server.Write(h.raw)
		if err == nil {
			err = p.body(r, client, server, h, &p.up, &q.sent)
		}
		close(q.whole)
		if err != nil {
			return
		}
	}
}

func (p *proxy) answers(server, client *net.TCPConn, asked <-chan *passing) {
	r := bufio.NewReaderSize(server, 16<<10)
	for q := range asked {
		for {
			h, err := readHead(r)
			if err != nil {
				return
			}
			if _, err := client.Write(h.raw); err != nil {
				return
			}
			if h.status >= 100 && h.status < 200 { // 100 Continue: the answer is still to come
				continue
			}
			q.Status = h.status
			if q.Kind == http.MethodHead || h.status == http.StatusNoContent || h.status == http.StatusNotModified {
				h.length, h.chunked = 0, false
			}
			err = p.body(r, server, client, h, &p.down, &q.got)
			select {
			case <-q.whole: // it is counted after it was written, perhaps after the answer
			case <-p.ctx.Done():
				return
			}
			q.Up, q.Down = q.sent.Load(), q.got.Load()
			p.mu.Lock()
			q.End = time.Now()
			if !q.next.IsZero() { // the client had its answer before
				q.End = q.next.Add(-1)
			}
			p.log = append(p.log, q.request)
			p.open--
			p.mu.Unlock()
			if err != nil {
				return
			}
			break
		}
	}
}

// body passes a message's body on and adds up its bytes.
func (p *proxy) body(r *bufio.Reader, from, to *net.TCPConn, h *head, pc *pace, n *atomic.Int64) error {
	if h.chunked {
		return p.chunks(r, to, pc, n)
	}
	left := h.length
	if k := min(left, int64(r.Buffered())); k > 0 {
		if err := pc.wait(p.ctx, k); err != nil {
			return err
		}
		if _, err := io.CopyN(to, r, k); err != nil {
			return err
		}
		n.Add(k)
		left -= k
	}
	for left > 0 {
		k := left
		if pc.rate > 0 {
			k = min(left, pieceBytes)
			if err := pc.wait(p.ctx, k); err != nil {
				return err
			}
		}
		m, err := to.ReadFrom(io.LimitReader(from, k)) // splice
		n.Add(m)
		left -= m
		if err == nil && m < k {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// chunks passes on a body in chunks (https://www.rfc-editor.org/rfc/rfc9112#section-7.1).
func (p *proxy) chunks(r *bufio.Reader, to *net.TCPConn, pc *pace, n *atomic.Int64) error {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		text, _, _ := strings.Cut(strings.TrimSpace(string(line)), ";")
		size, err := strconv.ParseInt(text, 16, 63)
		if err != nil {
			return err
		}
		if _, err := to.Write(line); err != nil {
			return err
		}
		if size == 0 {
			break
		}
		if err := pc.wait(p.ctx, size); err != nil {
			return err
		}
		if _, err := io.CopyN(to, r, size+2); err != nil {
			return err
		}
		n.Add(size)
	}
	for { // trailers
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if _, err := to.Write(line); err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			return nil
		}
	}
}

func (p *proxy) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// head is the head of a message, as it came and as far as passing on needs it.
type head struct {
	raw     []byte
	method  string
	target  string
	status  int
	length  int64
	chunked bool
}

const maxHead = 64 << 10

func readHead(r *bufio.Reader) (*head, error) {
	h := &head{}
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		first := len(h.raw) == 0
		h.raw = append(h.raw, line...)
		if len(h.raw) > maxHead {
			return nil, errors.New("head too long")
		}
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" {
			return h, nil
		}
		if first {
			a, rest, _ := strings.Cut(text, " ")
			b, _, _ := strings.Cut(rest, " ")
			if strings.HasPrefix(a, "HTTP/") {
				if h.status, err = strconv.Atoi(b); err != nil {
					return nil, err
				}
			} else {
				h.method, h.target = a, b
			}
			continue
		}
		name, value, _ := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "content-length":
			if h.length, err = strconv.ParseInt(value, 10, 63); err != nil {
				return nil, err
			}
		case "transfer-encoding":
			h.chunked = strings.EqualFold(value, "chunked")
		}
	}
}

func kindOf(h *head) string {
	_, query, _ := strings.Cut(h.target, "?")
	if h.method == http.MethodGet && (strings.Contains(query, "list-type") || strings.Contains(query, "prefix=") || strings.Contains(query, "uploads")) {
		return "LIST"
	}
	return h.method
}

// pace hands out bytes at a rate. The zero value does not wait.
type pace struct {
	rate float64
	mu   sync.Mutex
	free time.Time // when all that was handed out has gone through
}

const pieceBytes = 128 << 10

func (p *pace) wait(ctx context.Context, n int64) error {
	if p.rate <= 0 {
		return nil
	}
	p.mu.Lock()
	if now := time.Now(); p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(n) / p.rate * 1e9))
	d := time.Until(p.free)
	p.mu.Unlock()
	if d < time.Millisecond { // a timer is no finer than that; what was not waited for is waited for later
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reset forgets what went through.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = nil
}

// passed returns what went through since reset. A request is written down just after its client has the answer: what is under way is waited for, a little.
func (p *proxy) passed() []request {
	const most = 50 * time.Millisecond
	for end := time.Now().Add(most); ; {
		p.mu.Lock()
		if p.open == 0 || time.Now().After(end) {
			defer p.mu.Unlock()
			return slices.Clone(p.log)
		}
		p.mu.Unlock()
		p.wait(time.Millisecond)
	}
}

// traffic is what went through a proxy in some stretch of time.
type traffic struct {
	requests       int
	kinds          map[string]int
	bytesUp        int64 // of bodies
	bytesDown      int64
	serial         int // the longest chain of requests each of which began after the one before it had ended
	list           []request
	failedRequests int // answered with 5xx
}

// sum sums up what went through.
func sum(log []request) traffic {
	t := traffic{kinds: map[string]int{}, list: log, requests: len(log), serial: chain(log)}
	for _, q := range log {
		t.kinds[q.Kind]++
		t.bytesUp += q.Up
		t.bytesDown += q.Down
		if q.Status >= 500 {
			t.failedRequests++
		}
	}
	return t
}

// chain is the length of the longest chain of requests that follow each other. The log is in the order of ends, so taking each that begins after the last taken
// one has ended is the longest there is.
func chain(log []request) int {
	n := 0
	var last time.Time
	for _, q := range log {
		if q.Begin.After(last) {
			n++
			last = q.End
		}
	}
	return n
}
