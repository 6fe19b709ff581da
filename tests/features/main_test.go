// Package features has the tests of what the library can do, a file for each feature. No call of a queue ends because
// the machine is slow: the bounds of attempts are long here. The tests beside this package, in tests/weather, have
// those that users have.
package features

import (
	"os"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/ops"
)

func TestMain(m *testing.M) {
	link.ReadFor = queuetest.Patience / 2 // what was not read is so for another reason than a slow machine
	link.AttemptTimeout, link.SilentAfter = time.Hour, time.Hour
	os.Exit(queuetest.RunTests(m, script.ScriptTexts...))
}

// statusInQueue gets a message that must be there.
func statusInQueue(f *face.Fixture, m *ops.Queue, id string) *ops.MessageStatus {
	f.T.Helper()
	s, err := m.Get(queuetest.CtxB, id)
	if err != nil || s == nil {
		f.T.Fatalf("get %s: %v, %v", id, s, err)
	}
	return s
}
