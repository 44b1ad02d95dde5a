// Package stdlib reads what every Go installation has: the standard library's source. It is the examples' input.
package stdlib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Source is a Go installation's standard library.
type Source struct{ GOROOT string }

// Find returns the installation at goroot, or the one that built this program when goroot is "".
func Find(ctx context.Context, goroot string) (Source, error) {
	if goroot == "" {
		goroot = build.Default.GOROOT
	}
	if goroot == "" { // built with -trimpath
		out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return Source{}, fmt.Errorf("cannot find the Go installation (go env GOROOT: %w); name it with --goroot", err)
		}
		goroot = strings.TrimSpace(string(out))
	}
	if _, err := os.Stat(filepath.Join(goroot, "src", "fmt", "print.go")); err != nil {
		return Source{}, fmt.Errorf("no standard library source in %s (%w); name a Go installation that has src/ with --goroot", goroot, err)
	}
	return Source{goroot}, nil
}

// Packages returns the import paths of the standard library's public packages, sorted; at most limit of them if that is not 0.
func (s Source) Packages(limit int) ([]string, error) {
	root := filepath.Join(s.GOROOT, "src")
	var paths []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != root && (name == "cmd" || name == "vendor" || name == "internal" || name == "testdata" || name[0] == '.' || name[0] == '_') {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			if dir := filepath.Dir(p); dir != root {
				rel, err := filepath.Rel(root, dir)
				if err != nil {
					return err
				}
				paths = append(paths, filepath.ToSlash(rel))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the standard library: %w", err)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	if limit > 0 && limit < len(paths) {
		paths = paths[:limit]
	}
	return paths, nil
}

// Package is the exported part of one package.
type Package struct {
	Path, Synopsis string
	Symbols        []Symbol
}

// Symbol is an exported name: Reader, Reader.Read.
type Symbol struct {
	Name, Kind, Signature, Doc string // Kind: const, var, type, func, method
}

// Functions counts exported functions and methods.
func (a *Package) Functions() (n int) {
	for _, s := range a.Symbols {
		if s.Kind == "func" || s.Kind == "method" {
			n++
		}
	}
	return n
}

// Extract reads a package as it is on linux/amd64 without cgo, so that every machine finds the same. A package that has nothing there has no symbols.
func (s Source) Extract(ctx context.Context, path string) (*Package, error) {
	api := &Package{Path: path}
	bc := build.Default
	bc.GOROOT, bc.GOOS, bc.GOARCH, bc.CgoEnabled = s.GOROOT, "linux", "amd64", false
	dir := filepath.Join(s.GOROOT, "src", filepath.FromSlash(path))
	pkg, err := bc.ImportDir(dir, 0)
	var none *build.NoGoError
	if errors.As(err, &none) {
		return api, nil
	}
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	d, err := doc.NewFromFiles(fset, files, path)
	if err != nil {
		return nil, err
	}
	api.Synopsis = d.Synopsis(d.Doc)
	x := extractor{fset: fset, api: api}
	x.values("const", d.Consts)
	x.values("var", d.Vars)
	x.funcs(d.Funcs)
	for _, t := range d.Types {
		x.add(t.Name, "type", "type "+t.Name, t.Doc)
		x.values("const", t.Consts)
		x.values("var", t.Vars)
		x.funcs(t.Funcs)
		for _, m := range t.Methods {
			x.add(t.Name+"."+m.Name, "method", x.signature(m.Decl), m.Doc)
		}
	}
	return api, x.err
}

// extractor collects symbols; err is the first one that happened.
type extractor struct {
	fset *token.FileSet
	api  *Package
	err  error
}

func (x *extractor) add(name, kind, signature, doc string) {
	x.api.Symbols = append(x.api.Symbols, Symbol{name, kind, signature, doc})
}

func (x *extractor) values(kind string, groups []*doc.Value) {
	for _, g := range groups {
		for _, name := range g.Names {
			if ast.IsExported(name) {
				x.add(name, kind, kind+" "+name, g.Doc)
			}
		}
	}
}

func (x *extractor) funcs(fs []*doc.Func) {
	for _, f := range fs {
		x.add(f.Name, "func", x.signature(f.Decl), f.Doc)
	}
}

// signature is a declaration without its comment and body.
func (x *extractor) signature(decl *ast.FuncDecl) string {
	d := *decl
	d.Doc, d.Body = nil, nil
	var b bytes.Buffer
	if err := format.Node(&b, x.fset, &d); err != nil && x.err == nil {
		x.err = fmt.Errorf("%s: %w", d.Name, err)
	}
	return b.String()
}
