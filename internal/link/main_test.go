package link

import (
	"os"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

func TestMain(m *testing.M) {
	ReadFor = queuetest.Patience / 2 // no call fails because the machine is slow
	os.Exit(queuetest.RunTests(m))
}
