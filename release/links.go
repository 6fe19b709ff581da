package main

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// A page is what other pages may need to know of a Markdown file, by names from the top of the tree.
type page struct {
	links   []string // as they are written
	files   []string // in code spans, as they are written
	anchors []string
}

// sourceFile matches a code span that names a file of this tree, or the end of its path.
var sourceFile = regexp.MustCompile(`^(?:[\w.-]+/)*[\w.-]+\.(?:go|lua|md)$`)

// readPage parses a Markdown file.
func readPage(source []byte) *page {
	p, parser := &page{}, goldmark.New(goldmark.WithExtensions(extension.Table)).Parser()
	// The visitor returns no error, so Walk returns none.
	_ = ast.Walk(parser.Parse(text.NewReader(source)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			p.links = append(p.links, string(n.Destination))
		case *ast.Image:
			p.links = append(p.links, string(n.Destination))
		case *ast.CodeSpan:
			if name := textOf(n, source); sourceFile.MatchString(name) {
				p.files = append(p.files, name)
			}
		case *ast.Heading:
			p.anchors = append(p.anchors, p.anchor(textOf(n, source)))
		}
		return ast.WalkContinue, nil
	})
	return p
}

// textOf is the text of an inline node or a heading, without its marks.
func textOf(n ast.Node, source []byte) string {
	var all strings.Builder
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		if t, ok := child.(*ast.Text); ok {
			all.Write(t.Value(source))
		} else {
			all.WriteString(textOf(child, source))
		}
	}
	return all.String()
}

// anchor is the anchor that GitHub gives to the next heading of a page. A heading that comes again gets a number.
func (p *page) anchor(heading string) string {
	first := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
	anchor := first
	for n := 1; slices.Contains(p.anchors, anchor); n++ {
		anchor = fmt.Sprintf("%s-%d", first, n)
	}
	return anchor
}

// tracked are the files of the tree, as git knows them, by names with slashes. So what was built here does not count.
func tracked(dir string) ([]string, error) {
	files, err := run(dir, nil, "git", "ls-files", "-z")
	return strings.Split(strings.TrimSuffix(files, "\x00"), "\x00"), err
}

// checkLinks returns a line for each relative link of a Markdown file that leads to no file or no heading, and for each
// file that the pages and the comments name and that does not exist.
func checkLinks(dir string) []string {
	files, err := tracked(dir)
	if err != nil {
		return []string{err.Error()}
	}
	pages, names := map[string]*page{}, map[string]bool{".": true}
	var wrong []string
	for _, file := range files {
		for at := file; at != "."; at = path.Dir(at) {
			names[at] = true
		}
		source, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return append(wrong, err.Error())
		}
		switch path.Ext(file) {
		case ".md":
			pages[file] = readPage(source)
		case ".go", ".lua", ".yml", ".html", ".js", "": // those without are Makefile and the scripts of CI
			for _, name := range documentName.FindAllString(string(source), -1) {
				if !slices.Contains(files, name) {
					wrong = append(wrong, fmt.Sprintf("%s names %s, which does not exist", file, name))
				}
			}
		}
	}
	for _, file := range files {
		if pages[file] == nil {
			continue
		}
		for _, link := range pages[file].links {
			if !leads(file, link, names, pages) {
				wrong = append(wrong, fmt.Sprintf("%s has a link that leads nowhere: %s", file, link))
			}
		}
		for _, name := range pages[file].files {
			if !slices.ContainsFunc(files, func(f string) bool { return f == name || strings.HasSuffix(f, "/"+name) }) {
				wrong = append(wrong, fmt.Sprintf("%s names %s, which does not exist", file, name))
			}
		}
	}
	return wrong
}

// documentName matches a page that a comment or an error names.
var documentName = regexp.MustCompile(`\bdocs/[\w.-]+\.md\b`)

// leads says whether a link of the page from leads to a file, a folder or a heading. Links to other hosts are not
// followed.
func leads(from, link string, names map[string]bool, pages map[string]*page) bool {
	to, err := url.Parse(link)
	if err != nil {
		return false
	}
	if to.IsAbs() || to.Host != "" {
		return true
	}
	target := from
	if to.Path != "" {
		target = path.Join(path.Dir(from), to.Path)
	}
	if to.Fragment == "" {
		return names[target]
	}
	return pages[target] != nil && slices.Contains(pages[target].anchors, to.Fragment)
}
