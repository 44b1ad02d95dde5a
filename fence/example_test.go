package fence_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// Of two processes that open a database, the last one owns it, and the other one is told.
func Example() {
	ctx := context.Background()
	l := fence.New(mem.New("account"), "run-42", fence.Options{Owner: "host:1"})
	first, err := l.Create(ctx, fence.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := first.Append(ctx, fence.Draft{Kind: fence.Commit, Label: "step-1"}); err != nil {
		log.Fatal(err)
	}

	second, err := l.Claim(ctx, fence.ClaimOptions{}) // in another process
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("second follows", second.Prev().Label, "as generation", second.Generation())

	_, err = first.Append(ctx, fence.Draft{Kind: fence.Commit, Label: "step-2"})
	fmt.Println("first is fenced:", errors.Is(err, fence.ErrFenced))
	fmt.Println("second is the owner:", second.Check(ctx) == nil)
	// Output:
	// second follows step-1 as generation 3
	// first is fenced: true
	// second is the owner: true
}
