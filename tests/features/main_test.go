// Package features has the tests of what the library can do, a file for each feature. No call of a queue ends because the machine is slow: the
// bounds of attempts are long here. The tests beside this package, in tests/weather, have those that users have.
package features

import (
	"os"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/consume"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

func TestMain(m *testing.M) {
	link.ReadFor = queuetest.Patience / 2 // what was not read is so for another reason than a slow machine
	link.AttemptTimeout, consume.LapseAfter = time.Hour, time.Hour
	os.Exit(queuetest.RunTests(m, script.ScriptTexts...))
}
