package remote_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

func TestProbeCostsFourRequestsThenOneThenNone(t *testing.T) {
	location := mem.New("account")
	var c remote.Counter
	requests := func() remote.Counts {
		n := c.Counts()
		n.BytesUp, n.BytesDown = 0, 0
		c = remote.Counter{}
		return n
	}
	for _, want := range []remote.Counts{{Put: 2, Get: 1, List: 1}, {}, {}} { // each time another Counted, as each handle has
		if err := remote.ProbeOnce(t.Context(), remote.Counted(location, &c)); err != nil {
			t.Fatal(err)
		}
		if got := requests(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	// Another process: another store value at the same location.
	other := tonbotest.NewStore(location)
	for _, want := range []remote.Counts{{Put: 1}, {}} {
		if err := remote.ProbeOnce(t.Context(), remote.Counted(other, &c)); err != nil {
			t.Fatal(err)
		}
		if got := requests(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestProbesAtOnceDoNotDisturbEachOther(t *testing.T) {
	for range 50 {
		location := mem.New("account")
		var wg sync.WaitGroup
		for i := range 16 {
			s := tonbotest.NewStore(location) // as if in a process of its own
			wg.Go(func() {
				probe := remote.ProbeOnce
				if i%2 == 0 {
					probe = remote.Probe
				}
				if err := probe(t.Context(), s); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

func TestOneStoreIsProbedOnceHoweverManyAsk(t *testing.T) {
	s := tonbotest.NewStore(mem.New("account"))
	gate := s.Block(tonbotest.Match{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := remote.ProbeOnce(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := remote.ProbeOnce(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while another probes: %v", err)
	}
	gate.Open()
	wg.Wait()
	if n := len(s.Calls()); n != 4 {
		t.Errorf("%d requests: %v", n, s.Calls())
	}
}

func TestStoreThatIgnoresTheConditionIsUnfitEachTime(t *testing.T) {
	location := mem.New("account")
	if err := remote.Probe(t.Context(), location); err != nil { // the location was good once: copied since, perhaps
		t.Fatal(err)
	}
	for _, inner := range []remote.Store{location, mem.New("fresh")} {
		s := tonbotest.NewStore(inner)
		s.IgnoreConditions(true)
		for range 3 {
			err := remote.ProbeOnce(t.Context(), s)
			if !errors.Is(err, remote.ErrUnfit) {
				t.Fatalf("got %v, want ErrUnfit", err)
			}
			for _, part := range []string{inner.String(), "step 2 of 4", "If-None-Match", "Use a store"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}
		}
		s.IgnoreConditions(false)
		if err := remote.ProbeOnce(t.Context(), s); err != nil {
			t.Errorf("a failed probe is remembered: %v", err)
		}
	}
}

// shows is a store whose reads are not consistent.
type shows struct {
	*mem.Store
	get  func(remote.Object, error) (remote.Object, error)
	list func([]remote.Info) []remote.Info
}

func (s *shows) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	obj, err := s.Store.Get(ctx, key, o)
	if s.get == nil {
		return obj, err
	}
	return s.get(obj, err)
}

func (s *shows) List(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	page, more, err := s.Store.List(ctx, prefix, o)
	if s.list != nil {
		page = s.list(page)
	}
	return page, more, err
}

func TestInconsistentReadsAreUnfit(t *testing.T) {
	for step, s := range map[string]*shows{
		"step 3 of 4, read back: an object is absent": {get: func(remote.Object, error) (remote.Object, error) {
			return remote.Object{}, &remote.Error{Kind: remote.ErrNotFound}
		}},
		"step 3 of 4, read back: the object is not what": {get: func(o remote.Object, err error) (remote.Object, error) {
			o.Body = []byte("older")
			return o, err
		}},
		"step 4 of 4, list": {list: func([]remote.Info) []remote.Info { return nil }},
	} {
		s.Store = mem.New("account")
		if err := remote.Probe(t.Context(), s); !errors.Is(err, remote.ErrUnfit) || !strings.Contains(err.Error(), step) {
			t.Errorf("got %v, want ErrUnfit at %q", err, step)
		}
	}
}

func TestProbeTellsWhatIsWrongWithTheAccess(t *testing.T) {
	notImplemented := &remote.Error{Op: "create", Store: "s3://b", Key: remote.ProbeKey, Kind: remote.ErrUnfit, Status: http.StatusNotImplemented}
	for _, c := range []struct {
		err, want error
		text      string
	}{
		{notImplemented, remote.ErrUnfit, "If-None-Match"},
		{remote.ErrUnauthorized, remote.ErrUnauthorized, "step"},
		{remote.ErrNoBucket, remote.ErrNoBucket, "step"},
		{remote.ErrDenied, remote.ErrDenied, "step"},
		{remote.ErrQuota, remote.ErrQuota, "step"},
	} {
		for skip := range 2 { // at the first and at the second create
			s := tonbotest.NewStore(mem.New("account"))
			s.Fail(tonbotest.Match{Op: tonbotest.Create, Skip: skip}, -1, c.err)
			err := remote.ProbeOnce(t.Context(), s)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("create %d fails with %v: got %v", skip+1, c.err, err)
			}
			if c.want != remote.ErrUnfit && errors.Is(err, remote.ErrUnfit) {
				t.Errorf("%v looks unfit: %v", c.err, err)
			}
		}
	}
	for _, op := range []tonbotest.Op{tonbotest.Get, tonbotest.List} {
		s := tonbotest.NewStore(mem.New("account"))
		s.Fail(tonbotest.Match{Op: op}, 1, remote.ErrDenied)
		if err := remote.ProbeOnce(t.Context(), s); !errors.Is(err, remote.ErrDenied) {
			t.Errorf("%s denied: %v", op, err)
		}
	}
}

func TestProbeSettlesUnknownOutcomes(t *testing.T) {
	for skip := range 2 {
		for name, do := range map[string]func(*tonbotest.Store, tonbotest.Match, int){
			"lost": (*tonbotest.Store).Lose, "answer dropped": (*tonbotest.Store).DropAnswer, "held": (*tonbotest.Store).Hold,
		} {
			s := tonbotest.NewStore(mem.New("account"))
			do(s, tonbotest.Match{Op: tonbotest.Create, Skip: skip}, 1)
			if err := remote.ProbeOnce(t.Context(), s); err != nil {
				t.Errorf("create %d %s: %v", skip+1, name, err)
			}
		}
	}
	s := tonbotest.NewStore(mem.New("account"))
	s.Partition(true)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := remote.ProbeOnce(ctx, s); !errors.Is(err, remote.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("unreachable: %v", err)
	}
}
