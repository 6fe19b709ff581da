package delayqueue

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrUnknownLayout: a newer version of this library writes the queue and may keep messages where this one does not look,
// so calls for many and DeleteQueue refuse it: upgrade this program. Sending, consuming and calls for one message go on.
var ErrUnknownLayout = errors.New("the layout of the queue is unknown to this version of the library")

// checkLayout refuses every layout but 1.
func checkLayout(layout string) error {
	if layout == "1" {
		return nil
	}
	if n, err := strconv.Atoi(layout); err != nil || n < 2 {
		return fmt.Errorf("%w: its field layout is %q, which no version writes: if no newer one runs, HDEL the field from its state",
			ErrUnknownLayout, layout)
	}
	return fmt.Errorf("%w: it is %s, and this version knows 1: upgrade this program", ErrUnknownLayout, layout)
}
