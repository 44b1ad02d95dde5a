package server

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// buckets of the durations of requests, in seconds.
var buckets = [...]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// metrics count requests, by route, method and status. No name of a database, key or client is in them: whoever reads them learns how busy the server is, and nothing else. Their number is bounded by that of the routes and
// statuses.
type metrics struct {
	inFlight atomic.Int64

	mu    sync.Mutex
	count map[answered]*tally
	took  map[string]*durations // by route
}

type answered struct {
	route, method string
	status        int
}

type tally struct{ requests, up, down int64 }

type durations struct {
	in  [len(buckets) + 1]int64
	sum float64
}

func newMetrics() *metrics {
	return &metrics{count: map[answered]*tally{}, took: map[string]*durations{}}
}

func (m *metrics) note(a answered, up, down int64, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.count[a]
	if t == nil {
		t = new(tally)
		m.count[a] = t
	}
	t.requests++
	t.up += up
	t.down += down
	d := m.took[a.route]
	if d == nil {
		d = new(durations)
		m.took[a.route] = d
	}
	i := 0
	for i < len(buckets) && took.Seconds() > buckets[i] {
		i++
	}
	d.in[i]++
	d.sum += took.Seconds()
}

// text is the exposition format 0.0.4 of Prometheus.
func (m *metrics) text(hits, looks int64) string {
	var b strings.Builder
	head := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.SortedFunc(maps.Keys(m.count), func(a, b answered) int {
		return strings.Compare(fmt.Sprint(a.route, " ", a.method, " ", a.status), fmt.Sprint(b.route, " ", b.method, " ", b.status))
	})
	series := func(name, help string, of func(*tally) int64) {
		head(name, "counter", help)
		for _, a := range all {
			fmt.Fprintf(&b, "%s{route=%q,method=%q,status=\"%d\"} %d\n", name, a.route, a.method, a.status, of(m.count[a]))
		}
	}
	series("tonbo_http_requests_total", "Requests answered.", func(t *tally) int64 { return t.requests })
	series("tonbo_http_request_bytes_total", "Bytes of request bodies read.", func(t *tally) int64 { return t.up })
	series("tonbo_http_response_bytes_total", "Bytes of response bodies written.", func(t *tally) int64 { return t.down })
	const took = "tonbo_http_request_duration_seconds"
	head(took, "histogram", "Time from the first byte of a request's header to the end of its answer.")
	for _, route := range slices.Sorted(maps.Keys(m.took)) {
		d := m.took[route]
		sum := int64(0)
		for i, n := range d.in {
			sum += n
			le := "+Inf"
			if i < len(buckets) {
				le = strconv.FormatFloat(buckets[i], 'g', -1, 64)
			}
			fmt.Fprintf(&b, "%s_bucket{route=%q,le=%q} %d\n", took, route, le, sum)
		}
		fmt.Fprintf(&b, "%s_sum{route=%q} %s\n%s_count{route=%q} %d\n", took, route, strconv.FormatFloat(d.sum, 'g', -1, 64), took, route, sum)
	}
	head("tonbo_http_requests_in_flight", "gauge", "Requests being answered.")
	fmt.Fprintf(&b, "tonbo_http_requests_in_flight %d\n", m.inFlight.Load())
	head("tonbo_key_verdicts_total", "counter", "Requests whose key was looked up in the store, or known from within the last seconds.")
	fmt.Fprintf(&b, "tonbo_key_verdicts_total{from=\"cache\"} %d\ntonbo_key_verdicts_total{from=\"store\"} %d\n", hits, looks)
	return b.String()
}

func (s *Server) serveMetrics(c *call) error {
	r := s.client.Requests()
	var b strings.Builder
	b.WriteString(s.metrics.text(s.keys.Verdicts()))
	b.WriteString("# HELP tonbo_store_requests_total Requests that the control plane has sent to the store.\n# TYPE tonbo_store_requests_total counter\n")
	for _, op := range []struct {
		name string
		n    int64
	}{{"delete", r.Delete}, {"get", r.Get}, {"head", r.Head}, {"list", r.List}, {"put", r.Put}} {
		fmt.Fprintf(&b, "tonbo_store_requests_total{op=%q} %d\n", op.name, op.n)
	}
	c.w.Header().Set("Cache-Control", "no-store")
	return c.send(http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", []byte(b.String()))
}

// methodLabel is a method as a metric has it: what a client invents is not kept.
func methodLabel(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return m
	}
	return "other"
}
