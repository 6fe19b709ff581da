package main

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

const listed = `package listed

import "time"

const Wait time.Duration = 5

var ErrGone, internal error

type base struct{ Shared int }

func (*base) Promoted(name string) {}

type Queue[T any] struct {
	base
	hidden, Shown int
}

func (Queue[T]) Send(v T, at ...time.Time) (id string, err error) { return "", nil }

type Handler = func(payload string, next func(n int)) error

type Closed interface{ secret() }

func New[T any](name string) *Queue[T] { return nil }
`

const listing = `pkg example.com/listed, const Wait time.Duration = 5
pkg example.com/listed, func New[T any](string) *Queue[T]
pkg example.com/listed, method (*Queue[T any]) Promoted(string)
pkg example.com/listed, method (Queue[T any]) Send(T, ...time.Time) (string, error)
pkg example.com/listed, type Closed interface
pkg example.com/listed, type Closed interface, unexported methods
pkg example.com/listed, type Handler = func(string, func(int)) error
pkg example.com/listed, type Queue[T any] struct
pkg example.com/listed, type Queue[T any] struct, Shared int
pkg example.com/listed, type Queue[T any] struct, Shown int
pkg example.com/listed, var ErrGone error
`

func TestListAPI(t *testing.T) {
	t.Setenv("GOWORK", "off")
	here := &tree{dir: t.TempDir()}
	for name, text := range map[string]string{
		"go.mod": "module example.com/listed\n\ngo 1.25\n", "listed.go": listed,
		"internal/own/own.go": "package own\n\nfunc Own() {}\n",
		"run/main.go":         "package main\n\nfunc Main() {}\n\nfunc main() {}\n",
	} {
		write(t, here.dir, name, text)
	}
	got, err := here.listAPI(&member{dir: ".", path: "example.com/listed"})
	if err != nil {
		t.Fatal(err)
	}
	if got != listing {
		t.Errorf("it differs:\n%s", strings.Join(compare(listing, got), "\n"))
	}
}

func TestOrder(t *testing.T) {
	parse := func(dir string, requires ...string) *member {
		text := "module example.com/" + dir + "\n"
		for _, other := range requires {
			text += "require example.com/" + other + " v0.1.0\n"
		}
		file, err := modfile.Parse("go.mod", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		return &member{dir: dir, path: "example.com/" + dir, mod: file}
	}
	here := &tree{modules: []*member{parse("a", "b", "c"), parse("b", "c"), parse("c"), parse("bench", "a")}}
	if err := here.order(); err != nil || names(here.modules) != "c, b, a, bench" {
		t.Errorf("%v, %v", names(here.modules), err)
	}
	if got := here.released(); names(got) != "c, b, a" {
		t.Errorf("released: %s", names(got))
	}
	here = &tree{modules: []*member{parse("a", "b"), parse("b", "a")}}
	if err := here.order(); err == nil || !strings.Contains(err.Error(), "circle: a, b") {
		t.Errorf("a circle: %v", err)
	}
}

func TestCompare(t *testing.T) {
	got := compare("func A()\nfunc B()\n", "func B()\nfunc C()\n")
	if !slices.Equal(got, []string{"- func A()", "+ func C()"}) {
		t.Error(got)
	}
}
