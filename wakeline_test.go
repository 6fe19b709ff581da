package delayqueue

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// lineUp makes n listeners, each of a queue of its own, that share one line. It gives them the marker by mark.
func lineUp(f *fixture, cli *redis.Client, n int) (all []*wakeListener, mark func(i int, at serverTime)) {
	for i := range n {
		s := newStore(cli, "dq", fmt.Sprintf("%s-%d", f.name, i)).forConsumer(time.Minute)
		l := newWakeListener(s)
		all = append(all, l)
		f.t.Cleanup(func() {
			l.close()
			s.release()
			f.cli.Del(ctxB, s.keys.wake)
		})
		if l.ask(); i == 0 {
			l.line.lines.mu.Lock()
			l.line.lines.all = slices.Repeat(l.line.lines.all, maxWakeLines) // so that there can be no other one
			l.line.lines.mu.Unlock()
		}
	}
	return all, func(i int, at serverTime) {
		f.t.Helper()
		f.must(f.cli.ZAdd(ctxB, all[i].store.keys.wake, redis.Z{Score: float64(at), Member: "w"}).Err())
	}
}

// together waits until a call is under way for these alone.
func together(t *testing.T, of ...*wakeListener) {
	t.Helper()
	eventually(t, "there is a call for them", func() bool {
		lines := &of[0].store.link.lines
		lines.mu.Lock()
		defer lines.mu.Unlock()
		call := of[0].line.call
		return call != nil && call.wait != wakeProbe && len(call.listeners) == len(of) &&
			!slices.ContainsFunc(of, func(l *wakeListener) bool { return !slices.Contains(call.listeners, l) })
	})
}

// TestWakeLinePassesOnWhatIsAskedFor: the queue whose marker came gets it, once for each request.
func TestWakeLinePassesOnWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	for tries := 1; ; tries++ {
		made, told := passesOn(t)
		if made <= 1 && told == 0 { // CLIENT UNBLOCK takes one
			return
		}
		if tries == 10 { // those of a slow machine do not come each time
			t.Fatalf("%d connections were made, and %d listeners were told of failures", made, told)
		}
	}
}

// passesOn says how many connections that took, and how many listeners were told of failures.
func passesOn(t *testing.T) (made, told int) {
	t.Helper()
	f, server := ownServer(t)
	ls, mark := lineUp(f, server.Client(t), 3)
	together(t, ls...)
	dials := infoNumber(t, f, "stats", "total_connections_received:%d")
	mark(1, 11)
	if at := receive(t, "the marker", ls[1].taken); at != 11 {
		t.Errorf("it is of %d", at)
	}
	together(t, ls[0], ls[2])
	mark(1, 12) // nobody has asked for it
	mark(2, 22)
	receive(t, "the marker of another queue", ls[2].taken)
	together(t, ls[0])
	if n := f.cli.ZCard(ctxB, ls[1].store.keys.wake).Val(); n != 1 || len(ls[1].taken) != 0 {
		t.Error("it was taken without a request")
	}
	ls[1].ask() // interrupts the call
	if at := receive(t, "the marker that waits", ls[1].taken); at != 12 {
		t.Errorf("it is of %d", at)
	}
	if n := infoNumber(t, f, "commandstats", "cmdstat_client|unblock:calls=%d,"); n == 0 {
		t.Error("no call was interrupted")
	}
	for _, l := range ls[1:] { // the first one was alone, and its call could not be interrupted
		told += min(1, len(l.failed)+len(l.unsupported))
	}
	return infoNumber(t, f, "stats", "total_connections_received:%d") - dials, told
}

// TestWakeLineIsFair: where there is always a marker for each, each gets as many.
func TestWakeLineIsFair(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ls, mark := lineUp(f, f.client(), 3)
	together(t, ls...)
	got := make([]int, len(ls))
	for i := range ls {
		mark(i, 1)
	}
	for range 60 {
		select {
		case <-ls[0].taken:
			got[0]++
			mark(0, 1)
			ls[0].ask()
		case <-ls[1].taken:
			got[1]++
			mark(1, 1)
			ls[1].ask()
		case <-ls[2].taken:
			got[2]++
			mark(2, 1)
			ls[2].ask()
		case <-time.After(patience):
			t.Fatalf("nothing comes any more: %v", got)
		}
	}
	if slices.Min(got) < 10 {
		t.Errorf("of 60 markers they got %v", got)
	}
}

// TestWakeLineIsLeft: a call does not take the marker of one that has left, and goes on for the others, also if its
// server answers nothing.
func TestWakeLineIsLeft(t *testing.T) {
	t.Parallel()
	for name, hung := range map[string]bool{"server answers": false, "server is hung": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, wire, cli := wired(t)
			ls, mark := lineUp(f, cli, 3)
			together(t, ls...)
			if hung {
				wire.Freeze()
			}
			begun := time.Now()
			ls[0].close()
			if took := time.Since(begun); took >= wakeBlock {
				t.Errorf("it left after %v", took)
			}
			wire.Thaw()
			together(t, ls[1], ls[2])
			eventually(t, "the server knows that it has left, and keeps its marker", func() bool {
				mark(0, 1)
				return f.cli.ZCard(ctxB, ls[0].store.keys.wake).Val() == 1
			})
			mark(1, 1)
			receive(t, "the marker of one that stays", ls[1].taken)
			ls[1].close()
			ls[2].close()
			lines := &ls[0].store.link.lines
			lines.mu.Lock()
			defer lines.mu.Unlock()
			if len(lines.all) != 0 {
				t.Errorf("%d lines are left", len(lines.all))
			}
		})
	}
}

// TestWakeLineConnectionFails: each that has asked learns it, for a marker may have been lost, and the line goes on.
func TestWakeLineConnectionFails(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	wire := redistest.NewWire(t, server.Addr())
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr()})
	t.Cleanup(func() { _ = cli.Close() })
	ls, mark := lineUp(f, cli, 3)
	together(t, ls...)
	eventually(t, "the call is there", func() bool { return blockedClients(t, f) == 1 })
	struck := wire.DropReply(func(cmd []string) bool { return cmd[0] == "bzpopmin" })
	lines := &ls[0].store.link.lines
	lines.mu.Lock()
	first := ls[0].line.call
	lines.mu.Unlock()
	wire.Cut() // the next call is the first that a fault can strike
	wire.Mend()
	receive(t, "it fails", first.answered)
	together(t, ls...)
	for _, l := range ls {
		select {
		case <-l.failed: // of the same fault, or of dials that failed
		default:
		}
	}
	mark(1, 1)
	receive(t, "the marker is lost", struck)
	for _, l := range ls {
		receive(t, "it is said", l.failed)
	}
	mark(2, 2)
	receive(t, "a marker that comes afterwards", ls[2].taken)
}

// TestWakeLineInterruptedTooEarly: a queue asks while the call of the others is still on its way.
func TestWakeLineInterruptedTooEarly(t *testing.T) {
	t.Parallel()
	f, wire, cli := wired(t)
	ls, mark := lineUp(f, cli, 3)
	together(t, ls...)
	struck, release := wire.HoldCommand(func(cmd []string) bool { return cmd[0] == "bzpopmin" && len(cmd) == 4 })
	mark(0, 1)
	receive(t, "marker", ls[0].taken)
	receive(t, "the call of the others is held", struck)
	unblocked := wire.DropReply(func(cmd []string) bool { return cmd[0] == "client" && cmd[1] == "unblock" })
	ls[0].ask()
	receive(t, "CLIENT UNBLOCK came too early, and its reply is lost", unblocked)
	mark(0, 2)
	go release() // it waits for the answer
	if at := receive(t, "the marker", ls[0].taken); at != 2 {
		t.Errorf("it is of %d", at)
	}
}

// TestWakeLineOfRefusedKey: one queue's trouble is not the others'.
func TestWakeLineOfRefusedKey(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(f *fixture, key string) (mend func()){
		"of another type": func(f *fixture, key string) func() {
			f.must(f.cli.Set(ctxB, key, "rubbish", 0).Err())
			return func() { f.must(f.cli.Del(ctxB, key).Err()) }
		},
		"not permitted": func(f *fixture, key string) func() {
			f.must(f.cli.Do(ctxB, "ACL", "SETUSER", "tenants", "resetkeys", "~*-0}:*", "~*-2}:*").Err())
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, server := ownServer(t)
			f.must(f.cli.Do(ctxB, "ACL", "SETUSER", "tenants", "on", "nopass", "+@all", "~*", "&*").Err())
			cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "tenants", Password: "x"})
			t.Cleanup(func() { _ = cli.Close() })
			ls, mark := lineUp(f, cli, 3)
			together(t, ls...)
			mend := refuse(f, ls[1].store.keys.wake)
			mark(0, 1) // whoever sends to a key that is of another type is refused, so no call hears of it before
			receive(t, "a marker", ls[0].taken)
			ls[0].ask()
			if mend == nil {
				receive(t, "it is said", ls[1].unsupported)
			} else {
				receive(t, "it is said", ls[1].failed)
			}
			for at := range serverTime(3) {
				for _, i := range []int{0, 2} {
					mark(i, at)
					if got := receive(t, "a marker of another queue", ls[i].taken); got != at {
						t.Errorf("it is of %d, want %d", got, at)
					}
					ls[i].ask()
				}
			}
			if len(ls[0].unsupported)+len(ls[2].unsupported) > 0 {
				t.Error("others were told that they cannot wait")
			}
			if mend == nil {
				return
			}
			mend()
			mark(1, 5)
			ls[1].retry()
			mark(0, 6) // a call ends
			if at := receive(t, "its marker when the key is mended", ls[1].taken); at != 5 {
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
			f, server := ownServer(t)
			f.must(f.cli.Do(ctxB, "ACL", "SETUSER", "default", refused).Err())
			ls, mark := lineUp(f, server.Client(t), 3)
			together(t, ls...)
			asks := func(i int, at serverTime) {
				t.Helper()
				select {
				case <-ls[i].failed: // of an earlier call
				default:
				}
				for tries, taken := 1, false; !taken; tries++ {
					if tries > 20 {
						t.Fatal("the connection fails again and again")
					}
					mark(i, at) // again if the connection has failed because the machine is slow: that loses one
					select {
					case <-ls[i].taken:
						taken = true
					case <-ls[i].failed:
					case <-time.After(patience):
						t.Fatal("a marker does not come")
					}
				}
				others := slices.Delete(slices.Clone(ls), i, i+1)
				together(t, others...)
				f.must(f.cli.Del(ctxB, ls[i].store.keys.wake).Err()) // the marker was perhaps not lost
				ls[i].ask()
				together(t, ls...)
			}
			asks(0, 1) // the first that CLIENT UNBLOCK is tried for
			for tries := 1; ; tries++ {
				dials := infoNumber(t, f, "stats", "total_connections_received:%d")
				for i := range 6 {
					asks(i%3, 2)
				}
				n := infoNumber(t, f, "stats", "total_connections_received:%d") - dials
				if n == 0 {
					break
				}
				if tries == 10 { // those of a slow machine are not made each time
					t.Fatalf("%d connections were made", n)
				}
			}
		})
	}
}

// TestWakeLineAlone: up to maxWakeLines queues wait as if there were no lines, each on a connection of its own and
// without a command for others.
func TestWakeLineAlone(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	cli, got := server.Client(t), make(chan string, maxWakeLines)
	queues := tenants(f, cli, maxWakeLines, func(name string) { got <- name })
	eventually(t, "all listen", func() bool { return blockedClients(t, f) == maxWakeLines })
	for _, q := range queues {
		f.send(q, "x", WithDelay(20*time.Millisecond))
		receive(t, "it is handled before the first tick", got)
	}
	for _, command := range []string{"id", "unblock"} {
		if n := infoNumber(t, f, "commandstats", "cmdstat_client|"+command+":calls=%d,"); n != 0 {
			t.Errorf("CLIENT %s was called %d times", command, n)
		}
	}
}

// TestLastServer: a connection is interrupted over another one only if both lead to one server, as far as can be known.
func TestLastServer(t *testing.T) {
	t.Parallel()
	var l link
	before := time.Now()
	l.server.note(remoteConn{addr: "10.0.0.1:6379"})
	l.server.note(remoteConn{addr: "10.0.0.1:6379"})
	if !l.oneServerSince(before) {
		t.Error("there has been one server only")
	}
	l.server.note(remoteConn{addr: "10.0.0.2:6379"})
	if l.oneServerSince(before) || l.oneServerSince(time.Now().Add(time.Second)) {
		t.Error("connections to the one before it may still be there")
	}
	l.server.changed = time.Now().Add(-2 * linkAge)
	if !l.oneServerSince(before) {
		t.Error("all connections are younger")
	}
	if l.oneServerSince(l.server.changed.Add(-time.Second)) {
		t.Error("this connection leads to the one before it")
	}
}

type remoteConn struct {
	net.Conn
	addr string
}

func (c remoteConn) RemoteAddr() net.Addr { return c }
func (c remoteConn) Network() string      { return "tcp" }
func (c remoteConn) String() string       { return c.addr }

// TestUnblockOfOtherServer: it is not called where the id may be that of somebody else.
func TestUnblockOfOtherServer(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	s := newStore(server.Client(t), "dq", f.name).forConsumer(time.Minute)
	defer s.release()
	f.must(s.unblock(ctxB, 1, time.Now()))
	s.link.server.note(remoteConn{addr: "10.0.0.1:6379"})
	if err := s.unblock(ctxB, 1, time.Now()); !errors.Is(err, errOtherServer) {
		t.Errorf("unblock: %v", err)
	}
	if n := infoNumber(t, f, "commandstats", "cmdstat_client|unblock:calls=%d,"); n != 1 {
		t.Errorf("CLIENT UNBLOCK was called %d times", n)
	}
}
