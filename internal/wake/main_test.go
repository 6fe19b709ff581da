package wake

import (
	"os"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

func TestMain(m *testing.M) { os.Exit(queuetest.RunTests(m, script.ScriptTexts...)) }
