package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// This file keeps the house small. Files, names and pages grow one line at a time, and nobody notices before a reader gives up.

// layers are the packages of the root module, from low to high. A package imports lower ones only.
var layers = []string{
	"internal/conc", "internal/event", "internal/message", "internal/link", "internal/script", "internal/shard", "internal/wake", "internal/produce",
	"internal/consume", ".", "ops",
}

// A bound says how much of something there may be.
type bound struct {
	what  string
	count func(dir string) (int, error)
	most  int
}

var bounds = []bound{
	{"files of the root package without tests", rootFiles, 17},
	{"lines of the root package without tests", rootLines, 3500},
	{"exported top-level names of the root package", rootNames, 124},
	{"lines of README.md", lines("README.md"), 150},
	{"words of README.md", words("README.md"), 900},
	{"lines of docs/README.zh-CN.md", lines("docs/README.zh-CN.md"), 150},
	{"words of docs/ARCHITECTURE.md", words("docs/ARCHITECTURE.md"), 1500},
	{"bytes of docs/PROTOCOL.md", size("docs/PROTOCOL.md"), 48 << 10},
	{"lines of the longest file in internal/script/lua", longestLua, 120},
}

// checkHouse returns a line for each bound that does not hold, and for each import that runs against the layers.
func checkHouse(dir string) []string {
	var wrong []string
	for _, b := range bounds {
		n, err := b.count(dir)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("%s cannot be counted: %v", b.what, err))
		case n > b.most:
			wrong = append(wrong, fmt.Sprintf("there are %d %s, at most %d may be", n, b.what, b.most))
		}
	}
	return append(wrong, checkLayers(dir)...)
}

// checkLayers returns a line for each import of a package that is not lower.
func checkLayers(dir string) []string {
	var wrong []string
	for rank, layer := range layers {
		err := eachFile(filepath.Join(dir, layer), func(name string, file *ast.File) {
			for _, spec := range file.Imports {
				path, _ := strconv.Unquote(spec.Path.Value)
				other := modulePath(path)
				if at := slices.Index(layers, other); at >= rank {
					wrong = append(wrong, fmt.Sprintf("%s: %s imports %s, which is not below it", name, layer, other))
				}
			}
		}, parser.ImportsOnly)
		if err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	return wrong
}

// modulePath is the folder of a package of the root module; of any other import, the import.
func modulePath(path string) string {
	const module = "github.com/go-delayqueue/delayqueue"
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// eachFile parses the Go files of one folder that are not tests.
func eachFile(dir string, each func(name string, file *ast.File), mode parser.Mode) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("no Go file in %s", dir)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, mode)
		if err != nil {
			return err
		}
		each(name, file)
	}
	return nil
}

func rootFiles(dir string) (n int, err error) {
	return n, eachFile(dir, func(string, *ast.File) { n++ }, parser.PackageClauseOnly)
}

func rootLines(dir string) (n int, err error) {
	var names []string
	err = eachFile(dir, func(name string, _ *ast.File) { names = append(names, name) }, parser.PackageClauseOnly)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		n += bytes.Count(text, []byte("\n"))
	}
	return n, err
}

func rootNames(dir string) (n int, err error) {
	count := func(names ...*ast.Ident) {
		for _, name := range names {
			if name.IsExported() {
				n++
			}
		}
	}
	return n, eachFile(dir, func(_ string, file *ast.File) {
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv == nil {
					count(decl.Name)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						count(spec.Name)
					case *ast.ValueSpec:
						count(spec.Names...)
					}
				}
			}
		}
	}, parser.SkipObjectResolution)
}

// page returns a count of one file.
func page(name string, count func(text []byte) int) func(dir string) (int, error) {
	return func(dir string) (int, error) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		return count(text), err
	}
}

func lines(name string) func(string) (int, error) {
	return page(name, func(text []byte) int { return bytes.Count(text, []byte("\n")) })
}

func words(name string) func(string) (int, error) {
	return page(name, func(text []byte) int { return len(bytes.Fields(text)) })
}

func size(name string) func(string) (int, error) {
	return page(name, func(text []byte) int { return len(text) })
}

func longestLua(dir string) (most int, err error) {
	return most, filepath.WalkDir(filepath.Join(dir, "internal/script/lua"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".lua" {
			return err
		}
		text, err := os.ReadFile(path)
		most = max(most, bytes.Count(text, []byte("\n")))
		return err
	})
}
