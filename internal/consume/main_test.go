package consume

import (
	"os"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

func TestMain(m *testing.M) {
	link.AttemptTimeout, link.SilentAfter = queuetest.Patience,
		queuetest.Patience // no call fails because the machine is slow
	os.Exit(queuetest.RunTests(m, script.ScriptTexts...))
}
