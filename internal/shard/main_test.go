package shard

import (
	"os"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

func TestMain(m *testing.M) {
	link.AttemptTimeout, link.ReadFor = queuetest.Patience, queuetest.Patience/2
	os.Exit(queuetest.RunTests(m, script.ScriptTexts...))
}
