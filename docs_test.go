package tonbo_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/base"
)

// declarations finds the functions of every Go file of the repository: "sync.go:handle.ship", and its tests: "fence.TestPace".
func declarations(t *testing.T) (funcs, tests map[string]bool) {
	t.Helper()
	funcs, tests = map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := fn.Name.Name
			if fn.Recv != nil {
				name = receiver(fn.Recv.List[0].Type) + "." + name
			} else if strings.HasSuffix(file, "_test.go") {
				pkg := path.Dir(file)
				if pkg == "." {
					pkg = "tonbo"
				}
				tests[pkg+"."+name] = true
			}
			funcs[file+":"+name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return funcs, tests
}

func receiver(e ast.Expr) string {
	if p, ok := e.(*ast.StarExpr); ok {
		e = p.X
	}
	return fmt.Sprint(e)
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// documents are the repository's texts.
func documents(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(docs, "README.md", "INVARIANTS.md")
}

var (
	codeRef  = regexp.MustCompile("`([a-z0-9_/]+\\.go):([A-Za-z0-9_.]+)`")
	testRef  = regexp.MustCompile("`([a-z0-9_/]+)\\.((?:Test|Fuzz|Example|Benchmark)[A-Za-z0-9_]*)`")
	bareTest = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*)`")
	ruleRef  = regexp.MustCompile(`"(R[0-9]+ [^"]+)"`)
	link     = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
)

func TestInvariantsNameCodeAndTestsThatExist(t *testing.T) {
	funcs, tests := declarations(t)
	text := readDoc(t, "INVARIANTS.md")
	variants := readDoc(t, "fence/export_test.go") + readDoc(t, "internal/gc/broken.go") + readDoc(t, "internal/sim/owners.go")
	n := 0
	for _, m := range codeRef.FindAllStringSubmatch(text, -1) {
		if n++; !funcs[m[1]+":"+m[2]] {
			t.Errorf("there is no function %s in %s", m[2], m[1])
		}
	}
	for _, m := range testRef.FindAllStringSubmatch(text, -1) {
		if n++; !tests[m[1]+"."+m[2]] {
			t.Errorf("there is no test %s in package %s", m[2], m[1])
		}
	}
	for _, m := range ruleRef.FindAllStringSubmatch(text, -1) {
		if n++; !strings.Contains(variants, `"`+m[1]+`"`) {
			t.Errorf("the model has no variant %q", m[1])
		}
	}
	for i := 1; i <= 11; i++ {
		if !strings.Contains(text, fmt.Sprintf("\n| **R%d** ", i)) {
			t.Errorf("rule R%d is missing", i)
		}
	}
	for i := 1; i <= 7; i++ {
		if !strings.Contains(text, fmt.Sprintf("\n| **%d** ", i)) {
			t.Errorf("promise %d is missing", i)
		}
	}
	if n < 100 {
		t.Errorf("found %d references: the pattern does not fit the text", n)
	}
}

func TestDocumentsNameTestsAndFilesThatExist(t *testing.T) {
	_, tests := declarations(t)
	known := map[string]bool{}
	for name := range tests {
		known[name[strings.LastIndexByte(name, '.')+1:]] = true
	}
	for _, doc := range documents(t) {
		text := readDoc(t, doc)
		for _, m := range bareTest.FindAllStringSubmatch(text, -1) {
			if !known[m[1]] {
				t.Errorf("%s: there is no %s", doc, m[1])
			}
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s: link: %v", doc, err)
			}
		}
	}
}

func TestReadmeShowsTheProgramThatRuns(t *testing.T) {
	program := readDoc(t, "examples/hello/main.go")
	program = program[strings.Index(program, "package main"):] // without its doc comment
	if !strings.Contains(readDoc(t, "README.md"), "```go\n"+program+"```\n") {
		t.Error("the program in README.md is not examples/hello/main.go")
	}
}

func TestOperationsExplainEveryOptionAndError(t *testing.T) {
	text := readDoc(t, "docs/operations.md")
	options := reflect.TypeFor[tonbo.Options]()
	for i := range options.NumField() {
		if f := options.Field(i); f.IsExported() && !strings.Contains(text, "\n| `"+f.Name+"` |") {
			t.Errorf("Options.%s is not explained", f.Name)
		}
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range sources {
		for _, m := range regexp.MustCompile(`(?m)^(?:\t|var )(Err[A-Z][A-Za-z]*) += errors\.New`).FindAllStringSubmatch(readDoc(t, file), -1) {
			if n++; !strings.Contains(text, "`"+m[1]+"`") {
				t.Errorf("%s is not explained", m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("found %d errors: the pattern does not fit", n)
	}
}

func TestFormatNamesEveryFieldOfAManifest(t *testing.T) {
	_, text, _ := strings.Cut(readDoc(t, "docs/format.md"), "## Base manifest\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, typ := range []reflect.Type{reflect.TypeFor[base.Manifest](), reflect.TypeFor[base.Segment](), reflect.TypeFor[base.Mark]()} {
		for i := range typ.NumField() {
			if name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ","); !strings.Contains(text, name) {
				t.Errorf("%s.%s is not in docs/format.md", typ, name)
			}
		}
	}
}
