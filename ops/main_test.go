package ops

import (
	"os"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

func TestMain(m *testing.M) {
	// What is not in the journal, or was not read, is so for another reason than a slow machine.
	journalTime, link.ReadFor = queuetest.Patience/2, queuetest.Patience/2
	// No call ends because the machine is slow: tests/weather has the bounds that users have.
	link.AttemptTimeout, link.SilentAfter = time.Hour, time.Hour
	os.Exit(queuetest.RunTests(m, script.ScriptTexts...))
}
