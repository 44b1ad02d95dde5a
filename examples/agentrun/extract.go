package main

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

// source is a Go installation's standard library.
type source struct{ goroot string }

// findSource returns the installation at goroot, or the one that built this program when goroot is "".
func findSource(ctx context.Context, goroot string) (source, error) {
	if goroot == "" {
		goroot = build.Default.GOROOT
	}
	if goroot == "" { // built with -trimpath
		out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return source{}, fmt.Errorf("cannot find the Go installation (go env GOROOT: %w); name it with --goroot", err)
		}
		goroot = strings.TrimSpace(string(out))
	}
	if _, err := os.Stat(filepath.Join(goroot, "src", "fmt", "print.go")); err != nil {
		return source{}, fmt.Errorf("no standard library source in %s (%w); name a Go installation that has src/ with --goroot", goroot, err)
	}
	return source{goroot}, nil
}

// packages returns the import paths of the standard library's public packages, sorted; at most limit of them if that is not 0.
func (s source) packages(limit int) ([]string, error) {
	root := filepath.Join(s.goroot, "src")
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

// packageAPI is the exported part of one package.
type packageAPI struct {
	path, synopsis string
	symbols        []symbol
}

type symbol struct {
	name, kind, signature, doc string
}

// functions counts exported functions and methods.
func (a *packageAPI) functions() (n int) {
	for _, s := range a.symbols {
		if s.kind == "func" || s.kind == "method" {
			n++
		}
	}
	return n
}

// extract reads a package as it is on linux/amd64 without cgo, so that every machine finds the same. A package that has nothing there has no symbols.
func (s source) extract(ctx context.Context, path string) (*packageAPI, error) {
	api := &packageAPI{path: path}
	bc := build.Default
	bc.GOROOT, bc.GOOS, bc.GOARCH, bc.CgoEnabled = s.goroot, "linux", "amd64", false
	dir := filepath.Join(s.goroot, "src", filepath.FromSlash(path))
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
	api.synopsis = d.Synopsis(d.Doc)
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
	api  *packageAPI
	err  error
}

func (x *extractor) add(name, kind, signature, doc string) {
	x.api.symbols = append(x.api.symbols, symbol{name, kind, signature, doc})
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
