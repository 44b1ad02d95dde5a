// Command openapi validates the OpenAPI document that is its argument.
package main

import (
	"fmt"
	"os"

	"github.com/getkin/kin-openapi/openapi3"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: openapi FILE")
		os.Exit(2)
	}
	l := openapi3.NewLoader()
	d, err := l.LoadFromFile(os.Args[1])
	if err == nil {
		err = d.Validate(l.Context)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}
