package schedule

import (
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// setting changes an entry on a line that holds the reply of the first step: until release, the change is stored, and open.
// Its client waits for that reply, as long as a test does.
func (f *fixture) setting(e Entry) (release func() error) {
	f.Helper()
	wire, far := f.wired(shared, testkit.Scaled(queuetest.Patience))
	struck, let := wire.HoldReply(func(cmd []string) bool { return len(cmd) > 1 && cmd[1] == changeScript.Hash() })
	set := make(chan error, 1)
	go func() { set <- far.Set(f.ctx(), e) }()
	select {
	case <-struck:
	case err := <-set:
		f.Fatalf("Set ended: %v", err)
	}
	return func() error { let(); return <-set }
}

// TestChangedAtAnInstantThatSkips: what a replica that has not heard of a change sends while that is stored is not sent once more for the
// entry as it is then.
func TestChangedAtAnInstantThatSkips(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.consume(nil)
	e := Entry{Name: "e", Every: time.Second, Overlap: Skip, CatchUp: 1000, Payload: "before"}
	f.must(f.s.Set(f.ctx(), e))
	stale := f.looked(f.replica(), false)
	e.Payload = "after"
	release := f.setting(e)
	begun := f.now()
	f.until("an instant has come since, and was sent for the entry as it was", func() bool {
		f.sends(stale)
		n, _ := got.of("e")
		for at := range n {
			if at > begun {
				return true
			}
		}
		return false
	})
	f.must(release())
	f.run(f.replica())
	f.until("it runs as it is", func() bool {
		payloads := got.payloads()
		return payloads[len(payloads)-1] == "after"
	})
	instants, most := got.of("e")
	if most != 1 {
		t.Errorf("messages for each instant, changed at %d: %v", begun, instants)
	}
}
