package mem_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/remote/remotetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	remotetest.Run(t, func(t *testing.T) remote.Store { return mem.New(t.Name()) }, remotetest.UniqueETags())
}

func TestANamedStoreIsTheSameEverywhereInTheProcess(t *testing.T) {
	if _, err := mem.Named("here").Create(t.Context(), "k", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if o, err := mem.Named("here").Get(t.Context(), "k", remote.GetOptions{}); err != nil || string(o.Body) != "x" {
		t.Errorf("got %q, %v", o.Body, err)
	}
	for _, other := range []*mem.Store{mem.Named("there"), mem.New("here")} {
		if page, _, err := other.List(t.Context(), "", remote.ListOptions{}); err != nil || len(page) != 0 {
			t.Errorf("%s: %v, %v", other, page, err)
		}
	}
}
