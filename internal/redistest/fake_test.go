package redistest

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
)

// fakeTB is a test whose end and whose failure the real one decides.
type fakeTB struct {
	testing.TB
	failed bool

	mu       sync.Mutex
	cleanups []func()
	log      string
	errors   string
}

func (f *fakeTB) Failed() bool      { return f.failed }
func (f *fakeTB) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }

func (f *fakeTB) Logf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log += fmt.Sprintf(format, args...)
}

func (f *fakeTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors += fmt.Sprintf(format, args...)
}

// errorText returns what Errorf was told.
func (f *fakeTB) errorText() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errors
}

// end runs what was registered for the test's end.
func (f *fakeTB) end() {
	for _, fn := range slices.Backward(f.cleanups) {
		fn()
	}
}

// fakeServer answers the n-th command of each connection with replies[n], as
// it stands.
func fakeServer(t *testing.T, replies ...string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				r := newFrameReader(conn)
				for _, reply := range replies {
					if _, _, err := r.readCommand(nil); err != nil {
						return
					}
					if _, err := conn.Write([]byte(reply)); err != nil {
						return
					}
				}
				_, _, _ = r.readCommand(nil) // until the other end goes
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}
