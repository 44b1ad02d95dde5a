package server_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/server"
)

func TestDocumentNamesEveryOptionCodeMetricAndRoute(t *testing.T) {
	b, err := os.ReadFile("../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	options := reflect.TypeFor[server.Options]()
	for i := range options.NumField() {
		if f := options.Field(i); !f.Anonymous && !strings.Contains(text, "`"+f.Name+"`") {
			t.Errorf("Options.%s is not explained", f.Name)
		}
	}
	codes := server.Codes()
	sources, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range sources {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:Code: +|Code = |unavailable\()"([a-z_]+)"`).FindAllStringSubmatch(string(b), -1) {
			codes = append(codes, m[1])
		}
		for _, m := range regexp.MustCompile(`"(tonbo_[a-z_]+)"`).FindAllStringSubmatch(string(b), -1) {
			codes = append(codes, m[1])
		}
	}
	for _, code := range codes {
		if !strings.Contains(text, "`"+code+"`") {
			t.Errorf("%s is not explained", code)
		}
	}
	if len(codes) < 40 {
		t.Errorf("%d codes found: the pattern does not fit", len(codes))
	}
	w := newWorld(t)
	for _, r := range w.s.Routes() {
		path := strings.Fields(r)[1]
		if last := path[strings.LastIndexByte(path, '/')+1:]; !strings.Contains(text, last) && last != "{rest...}" {
			t.Errorf("%s is not described", r)
		}
	}
}
