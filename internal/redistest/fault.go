package redistest

import (
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// releaseLimit bounds how long a release waits for what it has let go, by the clock of testkit.Worked.
const releaseLimit = 5 * time.Second

// faultKind is what a fault does to the command it strikes.
type faultKind int

const (
	dropReply faultKind = iota
	cutReply
	holdReply
	holdCommand
)

// fault is one armed fault. It strikes one command at most.
type fault struct {
	kind  faultKind
	match func(cmd []string) bool

	struck   signal // the fault has struck
	released signal // the test has called release
	through  signal // what was held has gone its way, or never will
}

// signal is a channel that is closed once.
type signal struct {
	once sync.Once
	c    chan struct{}
}

func (s *signal) fire() { s.once.Do(func() { close(s.c) }) }

// DropReply loses one reply. The next command for which match returns true is
// forwarded, the server executes it, its reply is swallowed and the client's
// connection is closed; the channel closes once that is done. Replies to
// commands before it in the same pipeline arrive. Commands behind it that the
// client has sent still reach the server, and their replies are lost too.
//
// match gets the command's words as the client sent them. It is called for one
// command at a time, must not call the wire's methods, and is not called any
// more once it has returned true: a fault strikes once. Where several armed
// faults match a command, the one that was armed first has it. A fault whose
// command the server never answers is used up and never strikes.
func (w *Wire) DropReply(match func(cmd []string) bool) <-chan struct{} {
	return w.arm(dropReply, match).struck.c
}

// CutReply is DropReply that lets the first half of the reply through, a byte at least, before
// the connection is closed.
func (w *Wire) CutReply(match func(cmd []string) bool) <-chan struct{} {
	return w.arm(cutReply, match).struck.c
}

// HoldReply delays one reply, that to the next command for which match (see
// DropReply) returns true. struck closes when the server has executed the
// command and the wire holds its reply. release lets the reply go and returns
// when it was written to the client's connection, or the connection is gone.
// The connection stays open; the replies behind it wait too, as their order
// demands; other connections do not notice.
//
// release may be called again, with no effect. Called before the fault has
// struck it disarms it.
func (w *Wire) HoldReply(match func(cmd []string) bool) (struck <-chan struct{}, release func()) {
	f := w.arm(holdReply, match)
	return f.struck.c, func() { w.release(f) }
}

// HoldCommand delays one command, the next for which match (see DropReply)
// returns true, before the server gets it. struck closes when the wire holds
// it. release lets it go, to the server, even if the client has given up
// meanwhile and closed its connection: this is how a delayed original arrives
// after its repeat. release returns when the server has answered, or when it
// cannot any more, or after 5 seconds (a server that is paused, a command that
// blocks). What the client sends behind the command on the same connection
// waits too; other connections do not notice.
//
// The command stays on its connection to the server: if the server ends, or by
// Cut, it is lost. release may be called again, with no effect. Called before
// the fault has struck it disarms it.
func (w *Wire) HoldCommand(match func(cmd []string) bool) (struck <-chan struct{}, release func()) {
	f := w.arm(holdCommand, match)
	return f.struck.c, func() { w.release(f) }
}

// arm adds a fault.
func (w *Wire) arm(kind faultKind, match func([]string) bool) *fault {
	f := &fault{kind: kind, match: match}
	for _, s := range []*signal{&f.struck, &f.released, &f.through} {
		s.c = make(chan struct{})
	}
	w.faultMu.Lock()
	defer w.faultMu.Unlock()
	w.faults = append(w.faults, f)
	return f
}

// take removes and returns the first armed fault that matches, nil if none
// does.
func (w *Wire) take(cmd []string) *fault {
	w.faultMu.Lock()
	defer w.faultMu.Unlock()
	for i, f := range w.faults {
		if f.match(cmd) {
			w.faults = slices.Delete(w.faults, i, i+1)
			return f
		}
	}
	return nil
}

// release ends a hold and waits until what was held has gone its way.
func (w *Wire) release(f *fault) {
	f.released.fire()
	w.faultMu.Lock()
	if i := slices.Index(w.faults, f); i >= 0 { // has not struck, nor will it
		w.faults = slices.Delete(w.faults, i, i+1)
		f.through.fire()
	}
	w.faultMu.Unlock()
	for begun := testkit.Worked(); testkit.Worked()-begun < releaseLimit; {
		select {
		case <-f.through.c:
			return
		case <-time.After(pollPeriod):
		}
	}
}
