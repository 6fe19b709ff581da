package main

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/creack/pty"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/hinshun/vt10x"
)

func (w *world) command(args ...string) *exec.Cmd {
	path, err := os.Executable()
	ok(w, err)
	patience := cmp.Or(w.patience, 30*time.Second)
	if !w.hurried {
		patience = testkit.Scaled(patience)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "REDIS_URL="+w.url, "NO_COLOR=", "TERM=xterm", "TZ=UTC", "GORACE=atexit_sleep_ms=0",
		asProgram+"="+patience.String())
	cmd.Env = append(cmd.Env, w.env...)
	cmd.Args = append(cmd.Args, "--prefix", w.prefix)
	return cmd
}

// result is what a run without a terminal left behind.
type result struct {
	w        *world
	out, err string
	code     int
}

func (w *world) run(args ...string) result { return w.runWith("", args...) }

func (w *world) runWith(input string, args ...string) result {
	w.Helper()
	var out, errs bytes.Buffer
	cmd := w.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.Fatal(err)
	}
	if strings.Contains(errs.String(), "DATA RACE") || strings.Contains(errs.String(), "panic") {
		w.Fatalf("%q: %s", args, errs.String())
	}
	if strings.Contains(out.String()+errs.String(), "\x1b") {
		w.Errorf("%q: escape sequences, without a terminal: %q", args, out.String()+errs.String())
	}
	return result{w, out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// exits wants an exit code.
func (w *world) exits(code int, args ...string) result {
	w.Helper()
	r := w.run(args...)
	if r.code != code {
		w.Errorf("%q: exit code %d, want %d\n%s%s", args, r.code, code, r.out, r.err)
	}
	return r
}

// shows wants texts in the output.
func (r result) shows(wanted ...string) result {
	r.w.Helper()
	r.w.contains(r.out, wanted...)
	return r
}

// says wants texts in what stands beside the output.
func (r result) says(wanted ...string) result {
	r.w.Helper()
	r.w.contains(r.err, wanted...)
	return r
}

// must wants exit code 0 and returns what was printed.
func (w *world) must(args ...string) string {
	w.Helper()
	r := w.run(args...)
	if r.code != 0 {
		w.Fatalf("%q: exit code %d\n%s%s", args, r.code, r.out, r.err)
	}
	return r.out
}

// sends sends a message by the command, and returns its id.
func (w *world) sends(queue, payload string, args ...string) string {
	w.Helper()
	id, _, _ := strings.Cut(w.must(append([]string{"send", queue, payload}, args...)...), " ")
	return id
}

// refused wants an exit code and a text among what was printed.
func (w *world) refused(code int, text string, args ...string) {
	w.Helper()
	w.exits(code, args...).says(text)
}

func (w *world) contains(text string, wanted ...string) {
	w.Helper()
	testkit.Has(w, text, wanted...)
}

// inOrder wants texts in this order.
func (w *world) inOrder(text string, wanted ...string) {
	w.Helper()
	for rest := text; len(wanted) > 0; wanted = wanted[1:] {
		var found bool
		if _, rest, found = strings.Cut(rest, wanted[0]); !found {
			w.Errorf("no %q, or not in its place, in:\n%s", wanted[0], text)
			return
		}
	}
}

// lacks wants none of these in a text.
func (w *world) lacks(text string, unwanted ...string) {
	w.Helper()
	for _, one := range unwanted {
		if strings.Contains(text, one) {
			w.Errorf("%q in:\n%s", one, text)
		}
	}
}

const ctrlC = "\x03"

// terminal is a run that a person sits before.
type terminal struct {
	*world
	cmd    *exec.Cmd
	tty    *os.File
	screen vt10x.Terminal
	said   testkit.Buffer // all that was written
	ended  chan struct{}
}

func (w *world) terminal(args ...string) *terminal {
	w.Helper()
	rows, columns := cmp.Or(w.rows, 40), cmp.Or(w.columns, 150)
	t := &terminal{world: w, cmd: w.command(args...), screen: vt10x.New(vt10x.WithSize(columns, rows)),
		ended: make(chan struct{})}
	var err error
	t.tty, err = pty.StartWithSize(t.cmd, &pty.Winsize{Rows: uint16(rows), Cols: uint16(columns)})
	ok(w, err)
	go func() {
		defer close(t.ended)
		_, _ = io.Copy(io.MultiWriter(&t.said, t.screen), t.tty) // ends with an error when the program does
	}()
	w.Cleanup(func() {
		_ = t.cmd.Process.Kill() // in case that the test failed
		select {
		case <-t.ended:
		case <-time.After(testkit.Patience):
			w.Errorf("the terminal of %q does not end", args)
		}
		_ = t.tty.Close()
		if w.Failed() {
			w.Logf("%q wrote %.2000q; the screen:\n%s", args, t.all(), t.screen.String())
		}
	})
	return t
}

func (t *terminal) all() string { return t.said.String() }

func (t *terminal) sees(text string) {
	t.Helper()
	t.until(text+" is on the screen", func() bool { return strings.Contains(t.screen.String(), text) })
}

// wrote waits until this has been written, be it on the screen still or not.
func (t *terminal) wrote(text string) {
	t.Helper()
	t.until(text+" is written", func() bool { return strings.Contains(t.all(), text) })
}

func (t *terminal) types(text string) {
	t.Helper()
	ok(t, errOf(io.WriteString(t.tty, text)))
}

// ends waits for the end and wants this exit code.
func (t *terminal) ends(code int) {
	t.Helper()
	testkit.Receive(t, "its end", t.ended)
	_ = t.cmd.Wait() // its code is looked at here
	if got := t.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d:\n%s", got, code, t.screen.String())
	}
}

// interrupted types Ctrl-C, and wants this exit code.
func (t *terminal) interrupted(code int) {
	t.Helper()
	t.types(ctrlC)
	t.ends(code)
}

// answers runs a command, answers its question, and wants this exit code.
func (w *world) answers(answer string, code int, args ...string) *terminal {
	w.Helper()
	t := w.terminal(args...)
	t.sees("[y/N]")
	t.types(answer)
	t.ends(code)
	return t
}
