package delayqueuetest

import (
	"testing/synctest"
	"time"
)

// inBubble reports whether this goroutine runs in a bubble of testing/synctest.
func inBubble() (is bool) {
	defer func() { is = recover() == nil }()
	synctest.Wait()
	return true
}

// sleep lets the time of a bubble pass, until something is sent that may be due sooner.
func (r *Rig) sleep(until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.armed:
	}
}
