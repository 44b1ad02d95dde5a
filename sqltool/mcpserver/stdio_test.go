package mcpserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/sqltool/mcpserver"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}
`

func TestClientThatHasClosedItsSideGetsItsAnswers(t *testing.T) {
	c, db, _ := account(t)
	s, err := mcpserver.New(c, db, mcpserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in := initialize + `{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"run_sql","arguments":{"sql":"SELECT count(*) FROM generate_series(1, 300000)"}}}
{"jsonrpc":"2.0","id":3,"method":"ping"}
`
	var out bytes.Buffer
	if err := s.ServeStdio(context.Background(), strings.NewReader(in), &out); err != nil {
		t.Error(err)
	}
	for _, want := range []string{`"id":1`, `"id":"two"`, `300000`, `"id":3`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %s in %s", want, out.String())
		}
	}
}

func TestStdioEndsWithItsContextWhateverTheClientDoes(t *testing.T) {
	c, db, _ := account(t)
	s, err := mcpserver.New(c, db, mcpserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in, client := io.Pipe()
	answers, out := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.ServeStdio(ctx, in, out) }()
	go io.WriteString(client, initialize)
	if _, err := answers.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, answers)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	client.Close()
	out.Close()
}
