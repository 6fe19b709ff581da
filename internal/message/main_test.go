package message

import (
	"os"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

func TestMain(m *testing.M) { os.Exit(queuetest.RunTests(m)) }
