package tonbo_test

import (
	"context"
	"testing"

	"github.com/tonbo-go/tonbo"
)

// BenchmarkUseOfAnOpenDatabase: what a registry adds to a call for a database that is open.
func BenchmarkUseOfAnOpenDatabase(b *testing.B) {
	a := newAccount(b)
	c := newClient(b, a.machine())
	r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{}))
	defer r.Close(context.Background())
	use(b, r, "a", nothing)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Use(context.Background(), "a", nothing); err != nil {
			b.Fatal(err)
		}
	}
}
