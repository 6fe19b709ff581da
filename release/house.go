package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// This file keeps the house small. Files, names and pages grow one line at a time, and nobody notices before a reader
// gives up. A bound stands at what is there, or lower. The bounds of the registers and bytes of scripts stand in
// internal/script (TestScriptBounds), because only that package puts scripts together.

// layers are the packages of the root module, from low to high. A package imports lower ones only, and none of the
// module that is not here.
var layers = []string{
	"internal/clock", "internal/userlog", "internal/journal", "internal/conc", "internal/event", "internal/message",
	"internal/link",
	"internal/script", "internal/shard", "internal/wake", "internal/produce", "internal/consume", ".", "ops",
}

// A bound says how much of something there may be, and why no more.
type bound struct {
	what  string
	count func(dir string) (int, error)
	most  int
	why   string
}

var bounds = []bound{
	{"entries of the root", rootEntries, 52, "a visitor scrolls past all of them to the README"},
	{"files of the root package without tests", rootFiles, 17, "a user of the library reads them side by side"},
	{"test files of the root package", rootTests, 8, "the root shows the product, and tests/ the tests by feature"},
	{"exported names of the root package", exported("."), 283, "a user has to learn them, and each is a promise"},
	{"exported names of ops", exported("ops"), 348, "a person on call looks for one of them in a hurry"},
	{"lines over 120 characters in Go files", longLines(".go"), 0, "a review shows two versions side by side"},
	{"lines over 120 characters in Lua files", longLines(".lua"), 303, "a review shows two versions side by side"},
	{"lines over 120 characters in Markdown files", longLines(".md"), 253, "a diff of a long line hides what changed"},
	{"calls of a computed command in Lua files", linesThat(".lua", computed.MatchString), 0, "some hosts refuse them"},
	{"lines of README.md", lines("README.md"), 162, "a reader decides after three screens"},
	{"words of README.md", words("README.md"), 900, "long lines are no way round the bound of its lines"},
	{"lines of docs/README.zh-CN.md", lines("docs/README.zh-CN.md"), 152, "it says what README.md says"},
	{"bytes of docs/redis.md", size("docs/redis.md"), 19036, "who looks into a queue at night reads it"},
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
			wrong = append(wrong, fmt.Sprintf("there are %d %s, at most %d may be: %s", n, b.what, b.most, b.why))
		}
	}
	return append(wrong, checkLayers(dir)...)
}

// checkLayers returns a line for each import of a package that is not lower.
func checkLayers(dir string) []string {
	var wrong []string
	for rank, layer := range layers {
		err := eachFile(token.NewFileSet(), filepath.Join(dir, layer), func(name string, file *ast.File) {
			for _, spec := range file.Imports {
				path, _ := strconv.Unquote(spec.Path.Value)
				other, own := modulePath(path)
				switch at := slices.Index(layers, other); {
				case own && at < 0:
					wrong = append(wrong, fmt.Sprintf("%s: %s imports %s, which is in no layer", name, layer, other))
				case at >= rank:
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

// modulePath is the folder of a package of the root module; of any other import, the import, which is not its own.
func modulePath(path string) (folder string, own bool) {
	const module = "github.com/go-delayqueue/delayqueue"
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// eachFile parses the Go files of one folder that are not tests.
func eachFile(set *token.FileSet, dir string, each func(name string, file *ast.File), mode parser.Mode) error {
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
		file, err := parser.ParseFile(set, name, nil, mode)
		if err != nil {
			return err
		}
		each(name, file)
	}
	return nil
}

// rootEntries counts what ls shows in the root of a fresh clone.
func rootEntries(dir string) (int, error) {
	files, err := tracked(dir)
	entries := map[string]bool{}
	for _, file := range files {
		if entry, _, _ := strings.Cut(file, "/"); !strings.HasPrefix(entry, ".") {
			entries[entry] = true
		}
	}
	return len(entries), err
}

func rootFiles(dir string) (n int, err error) {
	return n, eachFile(token.NewFileSet(), dir, func(string, *ast.File) { n++ }, parser.PackageClauseOnly)
}

func rootTests(dir string) (n int, err error) {
	files, err := tracked(dir)
	for _, file := range files {
		if !strings.Contains(file, "/") && strings.HasSuffix(file, "_test.go") {
			n++
		}
	}
	return n, err
}

// exported returns a count of what go doc lists of a package: types, functions, methods, fields, constants, variables.
// Embedded fields are not counted.
func exported(folder string) func(dir string) (int, error) {
	return func(dir string) (n int, err error) {
		set := token.NewFileSet()
		var files []*ast.File
		err = eachFile(set, filepath.Join(dir, folder), func(_ string, file *ast.File) { files = append(files, file) }, 0)
		if err != nil {
			return 0, err
		}
		pkg, err := doc.NewFromFiles(set, files, folder)
		if err != nil {
			return 0, err
		}
		values := func(all ...*doc.Value) {
			for _, v := range all {
				n += len(exportedOf(v.Names))
			}
		}
		values(append(pkg.Consts, pkg.Vars...)...)
		n += len(pkg.Funcs) + len(pkg.Types)
		for _, t := range pkg.Types {
			values(append(t.Consts, t.Vars...)...)
			n += len(t.Funcs) + len(t.Methods) + members(t.Decl.Specs[0].(*ast.TypeSpec))
		}
		return n, nil
	}
}

func exportedOf(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !ast.IsExported(name) })
}

// members counts the exported fields of a struct, or methods of an interface.
func members(t *ast.TypeSpec) (n int) {
	var list *ast.FieldList
	switch t := t.Type.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return 0
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			if name.IsExported() {
				n++
			}
		}
	}
	return n
}

// measured are the pages that make bench and make faults write: how long their lines are depends on what was measured.
var measured = []string{"docs/benchmarks.md", "docs/reliability.md"}

// assembled has the scripts once more, as a test makes them.
const assembled = "assembled"

// longLines returns a count of lines over 120 characters, in files of one kind.
func longLines(ext string) func(dir string) (int, error) {
	return linesThat(ext, func(line string) bool { return utf8.RuneCountInString(strings.TrimRight(line, "\r\n")) > 120 })
}

var computed = regexp.MustCompile(`redis\.p?call\([^']`)

func linesThat(ext string, count func(line string) bool) func(dir string) (int, error) {
	return func(dir string) (n int, err error) {
		files, err := tracked(dir)
		if err != nil {
			return 0, err
		}
		for _, file := range files {
			if path.Ext(file) != ext || slices.Contains(measured, file) || path.Base(path.Dir(file)) == assembled {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				return 0, err
			}
			for line := range strings.Lines(string(text)) {
				if count(line) {
					n++
				}
			}
		}
		return n, nil
	}
}

// ofFile returns a count of one file.
func ofFile(name string, count func(text []byte) int) func(dir string) (int, error) {
	return func(dir string) (int, error) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		return count(text), err
	}
}

func lines(name string) func(string) (int, error) {
	return ofFile(name, func(text []byte) int { return bytes.Count(text, []byte("\n")) })
}

func words(name string) func(string) (int, error) {
	return ofFile(name, func(text []byte) int { return len(bytes.Fields(text)) })
}

func size(name string) func(string) (int, error) {
	return ofFile(name, func(text []byte) int { return len(text) })
}
