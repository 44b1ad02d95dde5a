package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ServeStdio serves one client, which writes to in and reads from out, until it closes in and has the answers to what it asked for (nil), or ctx ends, or the server is broken. The goroutine that reads in ends with in. https://modelcontextprotocol.io/specification/2025-06-18/basic/transports#stdio
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	session, err := s.mcp.Connect(ctx, patient{&mcp.IOTransport{Reader: io.NopCloser(in), Writer: nopCloser{out}, MaxLineLength: maxInput}}, nil)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- session.Wait() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.broken:
		err = fmt.Errorf("a call panicked: %v", s.first)
	}
	s.end(errClosed) // a session ends when its calls have
	session.Close()
	<-done
	return err
}

// maxInput bounds one message, in bytes.
const maxInput = 4 << 20

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// patient is a transport whose connection tells that the client has closed its side only when what it has asked for is answered: a shell that pipes its requests in is a client too. The SDK's own would drop the answers.
type patient struct{ mcp.Transport }

func (t patient) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &patientConn{Connection: c, asked: map[jsonrpc.ID]bool{}, answered: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

type patientConn struct {
	mcp.Connection
	mu       sync.Mutex
	asked    map[jsonrpc.ID]bool // requests without an answer
	answered chan struct{}       // holds a token when there may be none
	once     sync.Once
	closed   chan struct{}
}

func (c *patientConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if r, ok := msg.(*jsonrpc.Request); err == nil && ok {
		c.request(r)
	}
	for errors.Is(err, io.EOF) && c.waits() {
		select {
		case <-c.answered:
		case <-c.closed:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return msg, err
}

func (c *patientConn) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked) > 0
}

func (c *patientConn) request(r *jsonrpc.Request) {
	if r.IsCall() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked[r.ID] = true
		return
	}
	var cancelled struct {
		ID any `json:"requestId"`
	}
	if r.Method != "notifications/cancelled" || json.Unmarshal(r.Params, &cancelled) != nil {
		return
	}
	if id, err := jsonrpc.MakeID(cancelled.ID); err == nil { // it gets no answer
		c.done(id)
	}
}

func (c *patientConn) done(id jsonrpc.ID) {
	c.mu.Lock()
	delete(c.asked, id)
	none := len(c.asked) == 0
	c.mu.Unlock()
	if none {
		select {
		case c.answered <- struct{}{}:
		default:
		}
	}
}

func (c *patientConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.Connection.Write(ctx, msg)
	if r, ok := msg.(*jsonrpc.Response); ok {
		c.done(r.ID)
	}
	return err
}

func (c *patientConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Connection.Close()
}
