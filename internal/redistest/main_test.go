package redistest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// childEnv turns the test binary into the child of TestServerDiesWithBinary.
const childEnv = "REDISTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild()
	}
	os.Exit(Quietly(func() int { return leaks.Run(m.Run) }))
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
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Scaled(2*time.Minute))
	t.Cleanup(cancel)
	return ctx
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
