package script

import (
	"os"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

func TestMain(m *testing.M) { os.Exit(queuetest.RunTests(m, ScriptTexts...)) }

// callsOf is for script calls that a test makes itself, once each: the answer may take as long as a test waits.
func callsOf(f *queuetest.Base) *Store {
	s := NewStore(f.Cli, "dq", f.Name)
	s.AttemptTimeout = queuetest.Patience
	return s
}
