package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryNameOfAsynq: each name that asynq exports is on the page about moving over.
func TestEveryNameOfAsynq(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/hibiken/asynq").Output()
	ok(t, err)
	names := exportedNames(t, strings.TrimSpace(string(dir)))
	if len(names) < 300 {
		t.Fatalf("asynq has %d names", len(names))
	}
	areOnPage(t, "../../docs/from-asynq.md", names)
}

// TestEveryNameOfHdt3213: so is each name that hdt3213/delayqueue v1.1.2 exports. Its module cannot be had everywhere.
func TestEveryNameOfHdt3213(t *testing.T) {
	names, err := os.ReadFile("testdata/hdt3213-1.1.2.names")
	ok(t, err)
	areOnPage(t, "../../docs/from-hdt3213.md", strings.Fields(string(names)))
}

// areOnPage reports names that stand nowhere in the code of a page. Of a field or a method the last part is enough.
func areOnPage(t *testing.T, page string, names []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	ok(t, err)
	words := map[string]bool{}
	for _, code := range regexp.MustCompile("(?s)```.*?```|`[^`\n]+`").FindAllString(string(text), -1) {
		for _, word := range regexp.MustCompile(`\w+`).FindAllString(code, -1) {
			words[word] = true
		}
	}
	for _, name := range names {
		if !words[name[strings.LastIndex(name, ".")+1:]] {
			t.Errorf("%s: not a word of %s", page, name)
		}
	}
}

// exportedNames are the exported names of the package in a folder, with those of methods and fields behind their types.
func exportedNames(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	ok(t, err)
	names := map[string]bool{}
	add := func(of string, all ...*ast.Ident) {
		for _, name := range all {
			if name.IsExported() && (of == "" || token.IsExported(of)) {
				names[strings.TrimPrefix(of+"."+name.Name, ".")] = true
			}
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		ok(t, err)
		for _, d := range f.Decls {
			if d, isFunc := d.(*ast.FuncDecl); isFunc {
				add(receiver(d), d.Name)
				continue
			}
			for _, s := range d.(*ast.GenDecl).Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					add("", s.Names...)
				case *ast.TypeSpec:
					add("", s.Name)
					for _, field := range fieldsOf(s.Type) {
						add(s.Name.Name, field.Names...)
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// receiver is the type of which a function is a method; "" if it is none.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if pointer, is := of.(*ast.StarExpr); is {
		of = pointer.X
	}
	return of.(*ast.Ident).Name
}

// fieldsOf are the fields of a struct, or the methods of an interface.
func fieldsOf(of ast.Expr) []*ast.Field {
	switch of := of.(type) {
	case *ast.StructType:
		return of.Fields.List
	case *ast.InterfaceType:
		return of.Methods.List
	}
	return nil
}
