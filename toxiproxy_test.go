package tonbo_test

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/tonbo-go/tonbo/internal/toxiproxy"
	"github.com/tonbo-go/tonbo/remote/s3"
)

// TestStepsThroughToxiproxyAreNeitherLostNorTakenTwice: the agents of the bad line beside a peer that knows nothing of this library: each kind of trouble that it has, one after the other and two together, until each has met some steps.
func TestStepsThroughToxiproxyAreNeitherLostNorTakenTwice(t *testing.T) {
	l := newOverALine(t)
	proxy := toxiproxy.Start(t, l.endpoint)
	var dials atomic.Int64
	tr := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	l.through(s3.Options{Endpoint: "http://" + proxy.Addr, HTTPClient: &http.Client{Transport: tr}})
	type toxics = []toxiproxy.Toxic
	phases := []toxics{
		{{Type: "latency", Stream: "downstream", Attributes: map[string]any{"latency": 10, "jitter": 10}}}, // milliseconds
		{{Type: "bandwidth", Stream: "upstream", Attributes: map[string]any{"rate": 256}}},                 // KiB/s
		{{Type: "slicer", Stream: "downstream", Attributes: map[string]any{"average_size": 64, "size_variation": 32, "delay": 50}}},
		{{Type: "limit_data", Stream: "downstream", Toxicity: 0.7, Attributes: map[string]any{"bytes": 700}}},  // answers are lost, in part or whole
		{{Type: "limit_data", Stream: "upstream", Toxicity: 0.7, Attributes: map[string]any{"bytes": 2500}}},   // so are requests
		{{Type: "reset_peer", Stream: "downstream", Toxicity: 0.5, Attributes: map[string]any{"timeout": 20}}}, // the request has arrived
		{{Type: "reset_peer", Stream: "upstream", Toxicity: 0.5, Attributes: map[string]any{"timeout": 0}}},
		{{Type: "timeout", Stream: "downstream", Toxicity: 0.5, Attributes: map[string]any{"timeout": 50}}}, // silence, then the end
		{
			{Type: "latency", Stream: "upstream", Attributes: map[string]any{"latency": 5, "jitter": 5}},
			{Type: "limit_data", Stream: "downstream", Toxicity: 0.5, Attributes: map[string]any{"bytes": 900}},
		},
	}
	until, done := context.WithCancel(t.Context())
	defer done()
	l.met = make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		defer done()
		for _, phase := range phases {
			for _, x := range phase {
				if err := proxy.Add(t.Context(), x); err != nil {
					t.Error(err)
				}
			}
			before := dials.Load()
			for range 12 {
				select {
				case <-l.met:
				case <-until.Done():
				}
			}
			t.Logf("%v: %d connections", phase, dials.Load()-before)
			for _, x := range phase {
				if err := proxy.Remove(t.Context(), x); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	l.agents(until)
	<-finished
	if dials.Load() < 10 {
		t.Errorf("%d connections: hardly one was cut", dials.Load())
	}
}
