package redistest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childEnv turns the test binary into the child of TestServerDiesWithBinary.
const childEnv = "REDISTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild()
	}
	code := m.Run()
	if code == 0 {
		err := goleak.Find()
		for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); { // what is left may need time to end
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// runChild starts a server, prints its address and waits to be killed.
func runChild() {
	s, err := Run()
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(s.Addr())
	select {}
}

// testCtx bounds a test's calls.
func testCtx(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// mustClose fails the test unless c closes soon.
func mustClose(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("%s did not happen", what)
	}
}

// mustBeOpen fails the test if c is closed.
func mustBeOpen(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
		t.Fatalf("%s happened", what)
	default:
	}
}
