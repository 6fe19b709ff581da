// Package testkit is what the tests of many packages use, of the standard library alone.
package testkit

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for what must happen, by the clock of Worked; it is no measure of speed.
const Patience = time.Minute

// Until waits until a condition holds, or ends the test. It spends less time in cond than between two calls, so that
// tests that wait leave a busy machine to the others.
func Until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for begun := Worked(); ; {
		asked := time.Now()
		if cond() {
			return
		}
		if Worked()-begun > Patience {
			t.Fatalf("did not happen within %v: %s", Patience, what)
		}
		time.Sleep(min(max(time.Millisecond, 2*time.Since(asked)), 50*time.Millisecond))
	}
}

// Receive waits for a value, or ends the test.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	for begun := Worked(); Worked()-begun <= Patience; {
		select {
		case v := <-c:
			return v
		case <-time.After(tick):
		}
	}
	t.Fatalf("did not happen within %v: %s", Patience, what)
	panic("unreachable")
}

// Must ends the test if a call failed.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Has fails the test if a text lacks one of these.
func Has(t testing.TB, text string, all ...string) {
	t.Helper()
	for _, one := range all {
		if !strings.Contains(text, one) {
			t.Errorf("no %q in %q", one, text)
		}
	}
}

// A Buffer is a log, or a program's output, that a test reads while goroutines write it.
type Buffer struct {
	mu      sync.Mutex // guards the fields below
	text    bytes.Buffer
	written chan struct{} // closed by the next Write; nil: nobody waits
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.written != nil {
		close(b.written)
		b.written = nil
	}
	return b.text.Write(p)
}

// Written is closed when more was written.
func (b *Buffer) Written() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.written == nil {
		b.written = make(chan struct{})
	}
	return b.written
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Size is how much a test does: full, or short under go test -short, which is what make test and make check run. make
// check-all runs the full tests. A short test makes fewer of the same, and leaves no promise out.
func Size[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}

// A Usage is a wrong call of a program, or one that cannot be carried out: with this REDIS_ADDR, its exit code, and
// what stderr says.
type Usage struct {
	Redis string
	Args  []string
	Code  int
	Want  string
}

// RunUsages makes calls of a program.
func RunUsages(t *testing.T, run func(args []string, out, errs io.Writer) int, usages []Usage) {
	for _, u := range usages {
		t.Setenv("REDIS_ADDR", u.Redis)
		var out, errs Buffer
		if code := run(u.Args, &out, &errs); code != u.Code || !strings.Contains(errs.String(), u.Want) {
			t.Errorf("%v: exit code %d, stderr %q; want %d, %q", u.Args, code, &errs, u.Code, u.Want)
		}
	}
}
