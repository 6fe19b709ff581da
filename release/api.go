package main

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// apiFile is where the listing of a module stands.
func (t *tree) apiFile(m *member) string {
	name := strings.ReplaceAll(m.dir, "/", "-")
	if m.dir == "." {
		name = path.Base(m.path)
	}
	return filepath.Join(t.dir, "api", name+".txt")
}

// listAPI returns what users of m can name, a line each, sorted: without the names of parameters, which
// nobody depends on. "" for a program.
func (t *tree) listAPI(m *member) (string, error) {
	out, err := run(filepath.Join(t.dir, m.dir), nil, "go", "list", "-export", "-deps", "-f",
		`{{.ImportPath}} {{.Name}} {{.Export}} {{with .Module}}{{.Path}}{{end}}`, "./...")
	if err != nil {
		return "", err
	}
	exports := map[string]string{}
	var packages []string
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		exports[fields[0]] = fields[2]
		if fields[3] == m.path && fields[1] != "main" && fields[2] != "" && !strings.Contains(fields[0]+"/", "/internal/") {
			packages = append(packages, fields[0])
		}
	}
	compiled := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("go list knows no package %q", path)
		}
		return os.Open(exports[path])
	})
	var lines []string
	for _, path := range packages {
		pkg, err := compiled.Import(path)
		if err != nil {
			return "", err
		}
		for _, line := range listPackage(pkg) {
			lines = append(lines, fmt.Sprintf("pkg %s, %s\n", strings.TrimPrefix(path, "github.com/go-delayqueue/"), line))
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), ""), nil
}

// listPackage returns one line for each exported name.
func listPackage(pkg *types.Package) []string {
	named := func(other *types.Package) string {
		if other == pkg {
			return ""
		}
		return other.Name()
	}
	var lines []string
	for _, name := range pkg.Scope().Names() {
		object := pkg.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		switch object := object.(type) {
		case *types.Func:
			lines = append(lines, "func "+name+signature(object.Signature(), named))
		case *types.TypeName:
			lines = append(lines, listType(object, named)...)
		case *types.Const:
			lines = append(lines, types.ObjectString(object, named)+" = "+object.Val().ExactString())
		default:
			lines = append(lines, types.ObjectString(object, named))
		}
	}
	return lines
}

// listType returns a line for the type, and one for each exported field and method, promoted ones included.
func listType(name *types.TypeName, named types.Qualifier) []string {
	if name.IsAlias() {
		return []string{"type " + name.Name() + " = " + typeText(types.Unalias(name.Type()), named)}
	}
	full := strings.TrimPrefix(types.TypeString(name.Type(), named), "*") // with its type parameters
	of := "type " + full
	var lines []string
	switch t := name.Type().Underlying().(type) {
	case *types.Struct:
		lines = append(lines, of+" struct")
		for _, field := range fields(t) {
			lines = append(lines, of+" struct, "+field.Name()+" "+typeText(field.Type(), named))
		}
	case *types.Interface:
		lines = append(lines, of+" interface")
		for method := range t.Methods() {
			if !method.Exported() { // nobody else can implement it
				lines = append(lines, of+" interface, unexported methods")
				continue
			}
			lines = append(lines, of+" interface, "+method.Name()+signature(method.Signature(), named))
		}
		return lines
	default:
		lines = append(lines, of+" "+typeText(t, named))
	}
	values := types.NewMethodSet(name.Type())
	for method := range types.NewMethodSet(types.NewPointer(name.Type())).Methods() {
		if !method.Obj().Exported() {
			continue
		}
		receiver := "*" + full
		if values.Lookup(nil, method.Obj().Name()) != nil {
			receiver = full
		}
		lines = append(lines,
			fmt.Sprintf("method (%s) %s%s", receiver, method.Obj().Name(), signature(method.Type().(*types.Signature), named)))
	}
	return lines
}

// fields returns the exported fields, those of embedded unexported structs included.
func fields(t *types.Struct) []*types.Var {
	var found []*types.Var
	for field := range t.Fields() {
		if field.Exported() {
			found = append(found, field)
		} else if field.Embedded() {
			inner := field.Type()
			if pointer, ok := inner.(*types.Pointer); ok {
				inner = pointer.Elem()
			}
			if s, ok := inner.Underlying().(*types.Struct); ok {
				found = append(found, fields(s)...)
			}
		}
	}
	return found
}

// signature is the text of a function's type without the word func.
func signature(s *types.Signature, named types.Qualifier) string {
	var generic []string
	for p := range s.TypeParams().TypeParams() {
		generic = append(generic, p.Obj().Name()+" "+types.TypeString(p.Constraint(), named))
	}
	text := strings.TrimPrefix(typeText(s, named), "func")
	if generic != nil {
		text = "[" + strings.Join(generic, ", ") + "]" + text
	}
	return text
}

// typeText is the text of a type, without the names of parameters where it is a function's.
func typeText(t types.Type, named types.Qualifier) string {
	return types.TypeString(unnamed(t), named)
}

func unnamed(t types.Type) types.Type {
	s, ok := t.(*types.Signature)
	if !ok {
		return t
	}
	strip := func(tuple *types.Tuple) *types.Tuple {
		var vars []*types.Var
		for v := range tuple.Variables() {
			vars = append(vars, types.NewParam(token.NoPos, nil, "", unnamed(v.Type())))
		}
		return types.NewTuple(vars...)
	}
	return types.NewSignatureType(nil, nil, nil, strip(s.Params()), strip(s.Results()), s.Variadic())
}

// writeAPI writes the listings.
func (t *tree) writeAPI() error {
	if err := os.MkdirAll(filepath.Join(t.dir, "api"), 0o755); err != nil {
		return err
	}
	for _, m := range t.released() {
		text, err := t.listAPI(m)
		if err != nil {
			return err
		}
		if text != "" {
			if err := os.WriteFile(t.apiFile(m), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// changedAPI returns what differs from the listings: "-" what is gone, "+" what is new.
func (t *tree) changedAPI() ([]string, error) {
	var changed []string
	for _, m := range t.released() {
		is, err := t.listAPI(m)
		if err != nil {
			return nil, err
		}
		was, err := os.ReadFile(t.apiFile(m))
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		changed = append(changed, compare(string(was), is)...)
	}
	return changed, nil
}

// compare returns the lines that only one of two listings has.
func compare(was, is string) []string {
	before, after := slices.Collect(strings.Lines(was)), slices.Collect(strings.Lines(is))
	var changed []string
	for _, line := range before {
		if !slices.Contains(after, line) {
			changed = append(changed, "- "+strings.TrimSpace(line))
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			changed = append(changed, "+ "+strings.TrimSpace(line))
		}
	}
	return changed
}
