package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
)

// childEnv makes the test binary the program.
const childEnv = "IMPORT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		slog.SetDefault(slog.New(slog.DiscardHandler))
		main()
	}
	leaks.Main(m)
}

// write writes a file of rows, whose cents are their numbers, and returns their sum.
func write(t *testing.T, rows int) (path string, cents int) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintln(&b, "id,cents")
	for n := 1; n <= rows; n++ {
		fmt.Fprintf(&b, "A-%d,%d\n", n, n)
		cents += n
	}
	path = filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, cents
}

var varying = regexp.MustCompile(`(?m)^redis: .*\n|^\d+ of \d+ rows\n| +(took|[\dhm.]+s) *$|^ +`)

// tidy is what the program said, without the progress and times, and with single blanks.
func tidy(said string) string {
	said = regexp.MustCompile(`until .*`).ReplaceAllString(said, "until then")
	return regexp.MustCompile(` +`).ReplaceAllString(varying.ReplaceAllString(said, ""), " ")
}

// wanted is such a report of a file that write has written.
func wanted(rows, cents int) string {
	return fmt.Sprintf("rows handled bad missing sum\n%d %d 0 0 %d.%02d\n", rows, rows, cents/100, cents%100)
}

// says runs the program, and wants this report, and this exit code.
func says(t *testing.T, want string, code int, args ...string) {
	t.Helper()
	var out, errs testkit.Buffer
	got := run(t.Context(), args, &out, &errs)
	if said := tidy(out.String()); got != code || said != want || (errs.String() != "") != (code > 0) {
		t.Errorf("%v: exit code %d, stderr %q, it said:\n%s\nwant:\n%s", args, got, &errs, said, want)
	}
}

func TestSample(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	says(t, `rows handled bad missing sum
24 22 2 0 992.42
row 15 is bad: "A-1015,7203,9": the work failed 4 times
row 19 is bad: "A-1019,twelve": it must be an id and cents, as in A-1001,1250
`, 0, "-work", "10ms", "sample.csv")
}

// Files of one row, of one sum, and of two sums of which the last has more.
func TestSizes(t *testing.T) {
	t.Setenv("REDIS_ADDR", redistest.Start(t).Addr())
	for _, rows := range []int{1, 2, perSum - 1, perSum, 2*perSum - 1, 2*perSum + 1} {
		path, cents := write(t, rows)
		says(t, wanted(rows, cents), 0, "-work", "0s", path)
	}
}

// At the time limit there is a report of what there is. The same command prints it again.
func TestTimeLimit(t *testing.T) {
	t.Setenv("REDIS_ADDR", miniredis.RunT(t).Addr())
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte("id,cents\nA-1,250\nA-2"), 0o600); err != nil {
		t.Fatal(err)
	}
	const report = "rows handled bad missing sum\n2 0 1 1 0.00\n" +
		`row 2 is bad: "A-2": it must be an id and cents, as in A-1001,1250` + "\n"
	says(t, report, 1, "-work", "1h", "-limit", "4s", path) // its stop does not wait for the row for an hour
	says(t, "imported before, and not again until then\n"+report, 0, path)
}

// A file that was changed is another import, and the one that was begun is not split any further.
func TestChangedFile(t *testing.T) {
	path, _ := write(t, 1)
	if err := new(importer).split(t.Context(), job{Path: path, Name: "before"}, nil); !errors.Is(err,
		delayqueue.ErrSkipRetry) {
		t.Error(err)
	}
}

// The program is killed when it has split half of the file, and again among the rows. The third one reports each row,
// once.
func TestKilled(t *testing.T) {
	server := redistest.Start(t)
	t.Setenv("REDIS_ADDR", server.Addr())
	t.Setenv(childEnv, "1")
	const rows = 10_000
	path, cents := write(t, rows)
	name, _, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	look := ops.Of(delayqueue.NewMonitor(queueName, server.Client(t)))
	ctx, cancel := context.WithTimeout(t.Context(), 5*testkit.Patience) // until then a look is repeated
	defer cancel()
	split := func() int64 {
		last, err := look.Sequence(ctx, name)
		if err != nil && !errors.Is(err, delayqueue.ErrNotFound) {
			t.Fatal(err)
		}
		return last
	}
	start := func(work string) (p *redistest.Process, said func() string) {
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { out.Close() })
		p, err = redistest.StartProcess(os.Args[0], []string{"-work", work, path}, ".", out)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		return p, func() string {
			text, err := os.ReadFile(out.Name())
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}

	first, _ := start("1ms")
	testkit.Until(t, "it splits", func() bool { return split() > 0 })
	first.Kill()
	if n := split(); n >= rows {
		t.Fatal("it was killed too late: all rows were sent")
	} else {
		t.Logf("killed at row %d of the split", n)
	}
	second, _ := start("50ms") // all rows would take two minutes
	left := func() int {
		status, err := look.GetKey(ctx, reportKey(name))
		if err != nil {
			t.Fatal(err)
		}
		return status.CountdownLeft
	}
	testkit.Until(t, "another one splits the rest, and handles some",
		func() bool { return split() == rows && left() < rows-rows/100 })
	second.Kill()
	if n := left(); n < rows/10 {
		t.Fatalf("it was killed too late: only %d acks were missing", n)
	}
	third, said := start("1ms")
	testkit.Until(t, "the third one reports", third.Ended)
	if got := tidy(said()); got != wanted(rows, cents) {
		t.Errorf("it said:\n%s", said())
	}
	for _, state := range []delayqueue.State{delayqueue.StatePending, delayqueue.StateGarbage} {
		for s, err := range look.All(t.Context(), state, ops.Filter{}) {
			t.Errorf("left: %v, %v", s, err)
		}
	}
	if n := split(); n != 0 {
		t.Errorf("the sequence is left at %d", n)
	}
}

func TestUsage(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("id,cents\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.RunUsages(t, func(args []string, out, errs io.Writer) int { return run(t.Context(), args, out, errs) },
		[]testkit.Usage{
			{Args: []string{"-h"}, Want: "usage"},
			{Args: []string{"-nosuch"}, Code: 2, Want: "not defined"},
			{Args: []string{}, Code: 2, Want: "one file"},
			{Args: []string{"-limit", "0s", "sample.csv"}, Code: 2, Want: "-limit"},
			{Args: []string{"/no/such/file"}, Code: 1, Want: "no such file"},
			{Args: []string{empty}, Code: 1, Want: "0 rows"},
			{Redis: "127.0.0.1:1", Args: []string{"sample.csv"}, Code: 1, Want: "does not answer"},
		})
}
