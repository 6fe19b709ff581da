// Package leaks runs the tests of a package, and finds goroutines that they have left.
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main is for a TestMain that does nothing else.
func Main(m *testing.M) { os.Exit(Run(m.Run)) }

// Run runs tests, and returns their exit code, or 1 if goroutines are left that had time to end: a closed go-redis
// pool that could not dial looks at itself once a second.
func Run(tests func() int) int {
	code := tests()
	if code != 0 {
		return code
	}
	clock := goleak.IgnoreAnyFunction(
		"github.com/go-delayqueue/delayqueue/internal/testkit.(*clock).run") // ticks to the end
	err := goleak.Find(clock)
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
		err = goleak.Find(clock)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
