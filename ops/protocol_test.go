package ops

import (
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestProtocolConsumer: the consumer's entry that docs/PROTOCOL.md shows is read.
func TestProtocolConsumer(t *testing.T) {
	if c, alive := consumerOf("c", queuetest.ProtocolExample(t, "consumer"), 1790000000000000); !alive || c.Host != "web-3" || len(c.Handling) != 1 {
		t.Errorf("the consumer is %+v, %v", c, alive)
	}
}
