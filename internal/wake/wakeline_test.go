package wake

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// lineUp makes n listeners, each of a queue of its own, that share one line. It gives them the marker by mark.
func lineUp(f *queuetest.Base, cli *redis.Client,
	n int) (all []*WakeListener, mark func(i int, at message.ServerTime)) {
	for i := range n {
		s := script.NewStore(cli, "dq", fmt.Sprintf("%s-%d", f.Name, i)).ForConsumer(time.Minute)
		l := NewWakeListener(s)
		all = append(all, l)
		f.T.Cleanup(func() {
			l.End()
			s.Release()
			f.Cli.Del(queuetest.CtxB, s.Keys.Wake)
		})
		if l.Ask(); i == 0 {
			l.line.lines.mu.Lock()
			l.line.lines.all = slices.Repeat(l.line.lines.all, maxWakeLines) // so that there can be no other one
			l.line.lines.mu.Unlock()
		}
	}
	return all, func(i int, at message.ServerTime) {
		f.T.Helper()
		f.Must(f.Cli.ZAdd(queuetest.CtxB, all[i].store.Keys.Wake, redis.Z{Score: float64(at), Member: "w"}).Err())
	}
}

// together waits until a call is under way for these alone.
func together(t *testing.T, of ...*WakeListener) {
	t.Helper()
	queuetest.Eventually(t, "there is a call for them", func() bool {
		lines := linesOf(of[0].store.Link)
		lines.mu.Lock()
		defer lines.mu.Unlock()
		call := of[0].line.call
		return call != nil && call.wait != wakeProbe && len(call.listeners) == len(of) &&
			!slices.ContainsFunc(of, func(l *WakeListener) bool { return !slices.Contains(call.listeners, l) })
	})
}

// TestWakeLinePassesOnWhatIsAskedFor: the queue whose marker came gets it, once for each request.
func TestWakeLinePassesOnWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	queuetest.Eventually(t, "it makes no more connections than one, and nobody is told of a failure",
		func() bool { // a slow machine does now and then
			made, told := passesOn(t)
			return made <= 1 && told == 0 // CLIENT UNBLOCK takes one
		})
}

// passesOn says how many connections that took, and how many listeners were told of failures.
func passesOn(t *testing.T) (made, told int) {
	t.Helper()
	f, server := queuetest.OwnBase(t)
	ls, mark := lineUp(f, server.Client(t), 3)
	together(t, ls...)
	dials := f.InfoNumber("stats", "total_connections_received:%d")
	mark(1, 11)
	if at := queuetest.Receive(t, "the marker", ls[1].Taken); at != 11 {
		t.Errorf("it is of %d", at)
	}
	together(t, ls[0], ls[2])
	mark(1, 12) // nobody has asked for it
	mark(2, 22)
	queuetest.Receive(t, "the marker of another queue", ls[2].Taken)
	together(t, ls[0])
	if n := f.Cli.ZCard(queuetest.CtxB, ls[1].store.Keys.Wake).Val(); n != 1 || len(ls[1].Taken) != 0 {
		t.Error("it was taken without a request")
	}
	ls[1].Ask() // interrupts the call
	if at := queuetest.Receive(t, "the marker that waits", ls[1].Taken); at != 12 {
		t.Errorf("it is of %d", at)
	}
	if n := f.InfoNumber("commandstats", "cmdstat_client|unblock:calls=%d,"); n == 0 {
		t.Error("no call was interrupted")
	}
	for _, l := range ls[1:] { // the first one was alone, and its call could not be interrupted
		told += min(1, len(l.Failed)+len(l.Unsupported))
	}
	return f.InfoNumber("stats", "total_connections_received:%d") - dials, told
}

// TestWakeLineIsFair: where there is always a marker for each, each gets as many.
func TestWakeLineIsFair(t *testing.T) {
	t.Parallel()
	f := queuetest.NewBase(t)
	ls, mark := lineUp(f, queuetest.Shared.Client(t), 3)
	together(t, ls...)
	got := make([]int, len(ls))
	for i := range ls {
		mark(i, 1)
	}
	for range 60 {
		select {
		case <-ls[0].Taken:
			got[0]++
			mark(0, 1)
			ls[0].Ask()
		case <-ls[1].Taken:
			got[1]++
			mark(1, 1)
			ls[1].Ask()
		case <-ls[2].Taken:
			got[2]++
			mark(2, 1)
			ls[2].Ask()
		case <-time.After(queuetest.Patience):
			t.Fatalf("nothing comes any more: %v", got)
		}
	}
	if slices.Min(got) < 10 {
		t.Errorf("of 60 markers they got %v", got)
	}
}

// serverHangs runs a test alone with a server that answers, and with one that does not. The first is waited for,
// however slow it is.
func serverHangs(t *testing.T, test func(t *testing.T, hung bool)) {
	for name, hung := range map[string]bool{"server answers": false, "server is hung": true} {
		t.Run(name, func(t *testing.T) {
			defer func(before time.Duration) { leavePatience = before }(leavePatience)
			if !hung {
				leavePatience = queuetest.Patience
			}
			test(t, hung)
		})
	}
}

// TestWakeLineIsLeft: a call does not take the marker of one that has left, and goes on for the others, also if its
// server answers nothing.
func TestWakeLineIsLeft(t *testing.T) {
	serverHangs(t, func(t *testing.T, hung bool) {
		f, wire, cli := queuetest.WiredBase(t)
		ls, mark := lineUp(f, cli, 3)
		together(t, ls...)
		if hung {
			wire.Freeze()
		}
		begun := testkit.Worked()
		ls[0].End()
		if took := testkit.Worked() - begun; took >= wakeBlock {
			t.Errorf("it left after %v", took)
		}
		wire.Thaw()
		together(t, ls[1], ls[2])
		queuetest.Eventually(t, "the server knows that it has left, and keeps its marker", func() bool {
			mark(0, 1)
			return f.Cli.ZCard(queuetest.CtxB, ls[0].store.Keys.Wake).Val() == 1
		})
		mark(1, 1)
		queuetest.Receive(t, "the marker of one that stays", ls[1].Taken)
		ls[1].End()
		ls[2].End()
		lines := linesOf(ls[0].store.Link)
		lines.mu.Lock()
		defer lines.mu.Unlock()
		if len(lines.all) != 0 {
			t.Errorf("%d lines are left", len(lines.all))
		}
	})
}

// TestWakeListenerEnds: when the last listener of a line has ended, the server gives no marker to its connection,
// also if it hears of the end late. A server that answers nothing is not waited for.
func TestWakeListenerEnds(t *testing.T) {
	serverHangs(t, func(t *testing.T, hung bool) {
		f, wire, cli := queuetest.WiredBase(t)
		for range 20 {
			ls, mark := lineUp(f, cli, 1)
			together(t, ls...)
			if hung {
				wire.Freeze()
			}
			begun := testkit.Worked()
			ls[0].End()
			if took := testkit.Worked() - begun; took >= wakeBlock/2 {
				t.Errorf("it ended after %v", took)
			}
			if wire.Thaw(); hung {
				break
			}
			mark(0, 1)
			if n := f.Cli.ZCard(queuetest.CtxB, ls[0].store.Keys.Wake).Val(); n != 1 {
				t.Fatal("a marker was given to the connection that has ended")
			}
			f.Must(f.Cli.Del(queuetest.CtxB, ls[0].store.Keys.Wake).Err())
		}
	})
}

// TestWakeLineConnectionFails: each that has asked learns it, for a marker may have been lost, and the line goes on.
func TestWakeLineConnectionFails(t *testing.T) {
	t.Parallel()
	f, server := queuetest.OwnBase(t)
	wire := redistest.NewWire(t, server.Addr())
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr()})
	t.Cleanup(func() { _ = cli.Close() })
	ls, mark := lineUp(f, cli, 3)
	together(t, ls...)
	queuetest.Eventually(t, "the call is there", func() bool { return f.BlockedClients() == 1 })
	struck := wire.DropReply(func(cmd []string) bool { return cmd[0] == "bzpopmin" })
	lines := linesOf(ls[0].store.Link)
	lines.mu.Lock()
	first := ls[0].line.call
	lines.mu.Unlock()
	wire.Cut() // the next call is the first that a fault can strike
	wire.Mend()
	queuetest.Receive(t, "it fails", first.answered)
	together(t, ls...)
	for _, l := range ls {
		select {
		case <-l.Failed: // of the same fault, or of dials that failed
		default:
		}
	}
	mark(1, 1)
	queuetest.Receive(t, "the marker is lost", struck)
	for _, l := range ls {
		queuetest.Receive(t, "it is said", l.Failed)
	}
	mark(2, 2)
	queuetest.Receive(t, "a marker that comes afterwards", ls[2].Taken)
}

// TestWakeLineInterruptedTooEarly: a queue asks while the call of the others is still on its way.
func TestWakeLineInterruptedTooEarly(t *testing.T) {
	t.Parallel()
	f, wire, cli := queuetest.WiredBase(t)
	ls, mark := lineUp(f, cli, 3)
	together(t, ls...)
	struck, release := wire.HoldCommand(func(cmd []string) bool { return cmd[0] == "bzpopmin" && len(cmd) == 4 })
	mark(0, 1)
	queuetest.Receive(t, "marker", ls[0].Taken)
	queuetest.Receive(t, "the call of the others is held", struck)
	unblocked := wire.DropReply(func(cmd []string) bool { return cmd[0] == "client" && cmd[1] == "unblock" })
	ls[0].Ask()
	queuetest.Receive(t, "CLIENT UNBLOCK came too early, and its reply is lost", unblocked)
	mark(0, 2)
	go release() // it waits for the answer
	queuetest.Eventually(t, "the marker comes", func() bool {
		select {
		case at := <-ls[0].Taken:
			if at != 2 {
				t.Errorf("it is of %d", at)
			}
			return true
		case <-ls[0].Failed: // the machine is slow, so the connection was cut, perhaps with the marker on it
			mark(0, 2)
		default:
		}
		return false
	})
}

// TestWakeLineOfRefusedKey: one queue's trouble is not the others'.
func TestWakeLineOfRefusedKey(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(f *queuetest.Base, key string) (mend func()){
		"of another type": func(f *queuetest.Base, key string) func() {
			f.Must(f.Cli.Set(queuetest.CtxB, key, "rubbish", 0).Err())
			return func() { f.Must(f.Cli.Del(queuetest.CtxB, key).Err()) }
		},
		"not permitted": func(f *queuetest.Base, key string) func() {
			f.Must(f.Cli.Do(queuetest.CtxB, "ACL", "SETUSER", "tenants", "resetkeys", "~*-0}:*", "~*-2}:*").Err())
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, server := queuetest.OwnBase(t)
			f.Must(f.Cli.Do(queuetest.CtxB, "ACL", "SETUSER", "tenants", "on", "nopass", "+@all", "~*", "&*").Err())
			cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "tenants", Password: "x"})
			t.Cleanup(func() { _ = cli.Close() })
			ls, mark := lineUp(f, cli, 3)
			together(t, ls...)
			mend := refuse(f, ls[1].store.Keys.Wake)
			mark(0, 1) // whoever sends to a key that is of another type is refused, so no call hears of it before
			queuetest.Receive(t, "a marker", ls[0].Taken)
			ls[0].Ask()
			if mend == nil {
				queuetest.Receive(t, "it is said", ls[1].Unsupported)
			} else {
				queuetest.Receive(t, "it is said", ls[1].Failed)
			}
			for at := range message.ServerTime(3) {
				for _, i := range []int{0, 2} {
					mark(i, at)
					if got := queuetest.Receive(t, "a marker of another queue", ls[i].Taken); got != at {
						t.Errorf("it is of %d, want %d", got, at)
					}
					ls[i].Ask()
				}
			}
			if len(ls[0].Unsupported)+len(ls[2].Unsupported) > 0 {
				t.Error("others were told that they cannot wait")
			}
			if mend == nil {
				return
			}
			mend()
			mark(1, 5)
			ls[1].Retry()
			mark(0, 6) // a call ends
			if at := queuetest.Receive(t, "its marker when the key is mended", ls[1].Taken); at != 5 {
				t.Errorf("it is of %d", at)
			}
		})
	}
}

// TestWakeLineWithoutUnblock: where CLIENT UNBLOCK, or the id that it needs, is refused, markers come all the same, and
// no connection is closed for them.
func TestWakeLineWithoutUnblock(t *testing.T) {
	t.Parallel()
	for _, refused := range []string{"-client|id", "-client|unblock"} {
		t.Run(refused, func(t *testing.T) {
			t.Parallel()
			f, server := queuetest.OwnBase(t)
			f.Must(f.Cli.Do(queuetest.CtxB, "ACL", "SETUSER", "default", refused).Err())
			ls, mark := lineUp(f, server.Client(t), 3)
			together(t, ls...)
			asks := func(i int, at message.ServerTime) {
				t.Helper()
				select {
				case <-ls[i].Failed: // of an earlier call
				default:
				}
				mark(i, at)
				queuetest.Eventually(t, "a marker comes", func() bool {
					select {
					case <-ls[i].Taken:
						return true
					case <-ls[i].Failed: // because the machine is slow: that loses a marker
						mark(i, at)
					default:
					}
					return false
				})
				others := slices.Delete(slices.Clone(ls), i, i+1)
				together(t, others...)
				f.Must(f.Cli.Del(queuetest.CtxB, ls[i].store.Keys.Wake).Err()) // the marker was perhaps not lost
				ls[i].Ask()
				together(t, ls...)
			}
			asks(0, 1)                                                     // the first that CLIENT UNBLOCK is tried for
			queuetest.Eventually(t, "no connection is made", func() bool { // a slow machine makes some now and then
				dials := f.InfoNumber("stats", "total_connections_received:%d")
				for i := range 6 {
					asks(i%3, 2)
				}
				return f.InfoNumber("stats", "total_connections_received:%d") == dials
			})
		})
	}
}

// TestWakeBackoff: the waits grow, to two minutes at most.
func TestWakeBackoff(t *testing.T) {
	if d := wakeBackoff(WakeUpsOffAfter + 20); d < time.Minute || d > 2*time.Minute {
		t.Errorf("it waits %v in the end", d)
	}
	for n, want := 1, 10*time.Millisecond; n <= 100; n, want = n+1, min(2*want, time.Second) {
		if d := wakeBackoff(n); d < want/2 || d > 2*time.Minute {
			t.Errorf("after %d failures it waits %v", n, d)
		}
	}
}

// TestWakeConnectionIsCutBeforeItIsClosed: a client is not closed while a call comes back from it, of which go-redis
// would complain on stderr.
func TestWakeConnectionIsCutBeforeItIsClosed(t *testing.T) {
	t.Parallel()
	f := queuetest.NewBase(t)
	ls, _ := lineUp(f, queuetest.Shared.Client(t), 1)
	together(t, ls...)
	closed := func(conn *link.DedicatedClient) bool {
		return errors.Is(conn.Ping(queuetest.Over()).Err(), redis.ErrClosed)
	}
	w := ls[0].line
	w.lines.mu.Lock()
	conn, call := w.conn, w.call
	w.drop()
	if early := closed(conn); early || w.conn != nil { // the call cannot have come back, for that takes the lock
		t.Errorf("it is closed: %v, while its call is under way", early)
	}
	w.lines.mu.Unlock()
	queuetest.Receive(t, "its call is cut", call.answered)
	queuetest.Eventually(t, "it is closed afterwards", func() bool { return closed(conn) })
}
