// Package weather has the tests of what the world does to a queue: outages, broken lines, full servers, killed
// processes. All bounds of the library are those that its users have.
package weather

import (
	"os"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		childMain(spec)
		return
	}
	link.ReadFor = queuetest.Patience / 2 // what was not read is so for another reason than a slow machine
	os.Exit(queuetest.RunTests(m, script.ScriptTexts...))
}
