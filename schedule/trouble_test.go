package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// TestReplicasAreNotRead: a client that may read from replicas of the server finds all entries: a cursor of one node
// means nothing to another.
func TestReplicasAreNotRead(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 1, 2)
	f := fixtureOn(t, cluster.Client(t))
	const many = 3000
	f.write(many)
	cli := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), RouteRandomly: true})
	defer cli.Close()
	s := New(delayqueue.NewPublisher(f.name, cli))
	all, err := s.List(f.ctx())
	if err != nil || len(all) != many {
		t.Errorf("%d of %d entries, %v", len(all), many, err)
	}
	for i := range 50 {
		name := fmt.Sprint("new", i)
		f.must(s.Set(f.ctx(), Entry{Name: name, Every: time.Hour}))
		if _, err := s.Next(f.ctx(), name, 1); err != nil {
			t.Errorf("just after Set: %v", err)
		}
	}
}

// TestLookAtAFormerPrimary: a replica that runs the entries is told that the server is a replica now, at which its
// look cannot be noted.
func TestLookAtAFormerPrimary(t *testing.T) {
	f, _ := ownFixture(t)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Hour}))
	f.must(f.cli.Do(f.ctx(), "replicaof", "127.0.0.1", "1").Err())
	if _, err := newRunner(f.s).look(f.ctx()); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("it looks: %v", err)
	}
	f.must(f.cli.Do(f.ctx(), "replicaof", "no", "one").Err())
}

// write writes many entries that have run, with their sequences.
func (f *fixture) write(many int) {
	f.Helper()
	numbers, now := map[string]any{}, f.now()
	f.store(many, func(i int) record {
		numbers[sequenceOf(fmt.Sprint("e", i))] = fmt.Sprintf("%020d", uint64(number(1, now))^1<<63)
		return record{Gen: 1, Since: now, plan: plan{times: times{Cron: "0 0 1 1 *"}, CatchUp: 1}}
	})
	f.must(f.cli.HSet(f.ctx(), strings.TrimSuffix(f.s.table.store.Keys.Schedules, "schedules")+"sequence", numbers).Err())
}

// TestManyEntriesFarAway: a replica that needs longer to read all entries than a call may take sends all the same.
func TestManyEntriesFarAway(t *testing.T) {
	f, server := ownFixture(t)
	wire, far := f.wired(server, 0)
	f.must(f.s.Set(f.ctx(), Entry{Name: "tick", Every: time.Second}))
	const pages = 30
	f.write(100 * pages)
	got := f.consume(nil)
	wire.SetDelay(callLimit/pages + 50*time.Millisecond)
	f.run(far)
	f.until("it runs", func() bool { return len(got.payloads()) > 0 })
}

// TestRefusedAtOnce: a server that refuses what is due at once is asked once a second.
func TestRefusedAtOnce(t *testing.T) {
	f, server := ownFixture(t)
	wire, far := f.wired(server, 0)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Second, Overlap: Skip}))
	f.must(f.cli.ConfigSet(f.ctx(), "maxmemory", "1").Err())
	f.run(far)
	f.until("it is refused", func() bool { return strings.Contains(f.log.String(), "OOM") })
	f.fewCommands(wire)
	f.must(f.cli.ConfigSet(f.ctx(), "maxmemory", "0").Err())
	got := f.consume(nil)
	f.until("it runs", func() bool { return len(got.payloads()) > 0 })
}

// TestListsAreSetAgain: a replica sets its own list again if all entries were lost, whichever replica sees that
// first, and after a failover that has forgotten changes. A failover that has forgotten none leaves alone what others
// have set.
func TestListsAreSetAgain(t *testing.T) {
	f, _ := ownFixture(t)
	a, b := f.replica(), f.replica()
	f.must(a.SetAll(f.ctx(), "a", Entry{Name: "x", Every: time.Hour, Payload: "1"}))
	f.must(b.SetAll(f.ctx(), "b", Entry{Name: "y", Every: time.Hour, Payload: "1"}))
	runners := []*runner{f.looked(a, false), f.looked(b, false)}
	look := func(want string) {
		t.Helper()
		for _, r := range runners {
			f.steps(r)
		}
		all, err := f.s.List(f.ctx())
		f.must(err)
		got := ""
		for _, one := range all {
			got += one.Name + one.Payload + " "
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f.must(f.cli.FlushAll(f.ctx()).Err())
	look("x1 y1 ")
	before := f.cli.HGetAll(f.ctx(), f.s.table.store.Keys.Schedules).Val()
	f.must(a.SetAll(f.ctx(), "a", Entry{Name: "new", Every: time.Hour}, Entry{Name: "x", Every: time.Hour, Payload: "2"}))
	look("new x2 y1 ")
	f.must(f.cli.Del(f.ctx(), f.s.table.store.Keys.Schedules).Err())
	f.must(f.cli.HSet(f.ctx(), f.s.table.store.Keys.Schedules, before).Err())
	f.failover()
	look("new x2 y1 ")
	f.must(f.s.Set(f.ctx(), Entry{Name: "x", Every: time.Hour, Payload: "3"}))
	look("new x3 y1 ")
	f.failover()
	look("new x3 y1 ")
}

// TestForgottenLongAfter: what a server has forgotten is sent again, and logged, but not what a replica has known to be
// sent for ten to twenty minutes.
func TestForgottenLongAfter(t *testing.T) {
	for minutes, want := range map[int]int{0: 2, 30: 1} {
		t.Run(fmt.Sprint(minutes), func(t *testing.T) {
			f, _ := ownFixture(t)
			got := f.consume(nil)
			f.missed(f.now(), Entry{Name: "e", CatchUp: 20})
			local := time.Now()
			f.s.table.clock = func() time.Time { return local }
			r := f.looked(f.s, true)
			f.until("all have run", func() bool { return len(got.payloads()) == 20 })
			for range minutes / 10 {
				local = local.Add(rememberEvery)
				f.steps(r)
			}
			f.forget()
			f.steps(r)
			f.sends(r)
			f.until("what was sent again has run", func() bool {
				c, err := f.mon.Counts(f.ctx())
				return err == nil && c.Pending+c.Ready+c.Unack == 0
			})
			if ran, most := got.of("e"); len(ran) != 20 || most != want {
				t.Errorf("%v ran, want each %d times", ran, want)
			}
			f.log.Says(t, 1, "the server has forgotten messages of entries")
		})
	}
}

// A stubborn queue takes nothing back.
type stubborn struct{ *delayqueue.Publisher }

func (stubborn) InterceptKey(context.Context, string) (*delayqueue.InterceptResult, error) {
	return nil, errors.New("no")
}

// TestOpenForEver: a change that cannot be completed, and one that somebody else wrote and that would take for ever,
// are logged once, and the others go on.
func TestOpenForEver(t *testing.T) {
	f := newFixture(t)
	got := f.consume(nil)
	f.must(f.s.Set(f.ctx(), Entry{Name: "good", Every: time.Second}))
	f.pass("stuck", 4, maxInstant)
	f.must(f.cli.HSet(f.ctx(), f.s.table.store.Keys.Schedules,
		"stuck", fmt.Sprintf(`{"gen":5,"since":1,"every":5,"open":1,"void":[%d]}`, f.now()+3600),
		"huge", `{"gen":5,"since":1,"every":5,"open":1,"void":[1`+strings.Repeat(",1", maxVoid)+`]}`).Err())
	f.run(New(stubborn{f.pub}).WithLogger(f.s.log))
	f.until("the good one runs", func() bool { return len(got.payloads()) >= 4 })
	for _, name := range []string{"stuck", "huge"} {
		f.log.Says(t, 1, "entry="+name+" ")
	}
}

// TestChangedAfterItWasMissed: an entry that is changed after nobody could send makes up for what was missed, as it
// is then, unless it gets other times or was not to catch up.
func TestChangedAfterItWasMissed(t *testing.T) {
	f := newFixture(t)
	const before, after = "before", "after"
	now := f.now()
	change := map[string]func(*Entry){
		"changed":   func(e *Entry) { e.Payload = after },
		"two":       func(e *Entry) { e.Payload, e.CatchUp = after, 2 },
		"skips":     func(e *Entry) { e.Payload, e.Overlap = after, Skip },
		"retimed":   func(e *Entry) { e.Payload, e.Offset = after, (e.Offset+time.Minute)%time.Hour },
		"now none":  func(e *Entry) { e.Payload, e.CatchUp = after, NoCatchUp },
		"was none":  func(e *Entry) { e.Payload, e.CatchUp = after, 1 },
		"as before": func(e *Entry) {},
	}
	want := map[string]int{"changed": 1, "two": 2, "skips": 1, "as before": 1}
	for name, with := range change {
		e := Entry{Name: name, Payload: before}
		if name == "was none" {
			e.CatchUp = NoCatchUp
		}
		e = f.missed(now, e)
		f.pass(name, f.rec(name).Gen, now-60-3*3600)
		with(&e)
		f.must(f.s.Set(f.ctx(), e))
	}
	got := f.consume(nil)
	f.must(f.s.Set(f.ctx(), Entry{Name: "tick", Every: time.Second}))
	f.run(f.s, f.replica())
	f.until("they are caught up", func() bool {
		for name, n := range want {
			if ran, _ := got.of(name); len(ran) < n {
				return false
			}
		}
		n, _ := got.of("tick")
		return len(n) >= 2
	})
	for name := range change {
		instants, most := got.of(name)
		if len(instants) != want[name] || most > 1 {
			t.Errorf("%s: ran at %v, want %d", name, instants, want[name])
		}
		for at := range instants {
			if want := now - 60 - int64(want[name]-1)*3600; at < want || at > now {
				t.Errorf("%s: ran at %v, the first should be %d", name, instants, want)
			}
		}
	}
	for _, msg := range got.messages() {
		if name, _ := Of(msg); name != "tick" && name != "as before" && msg.Payload != after {
			t.Errorf("%s ran as it was", name)
		}
	}
}

// TestForgottenUnconfirmed: what too few replicas have is sent again before what comes after it, so a failover that
// forgets the first while the second is sent leaves out none.
func TestForgottenUnconfirmed(t *testing.T) {
	f, _ := ownFixture(t)
	f.pub.WithReplicaAck(1, time.Millisecond)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Second, CatchUp: 1000}))
	r := newRunner(f.s)
	ahead := func() bool { // one is there that is sent ahead, and is not confirmed
		f.steps(r)
		f.sends(r)
		last, _ := f.lastOf("e")
		return r.entries["e"].resting == r.reading && r.entries["e"].next == last
	}
	f.until("one rests", ahead)
	first := r.entries["e"].next
	f.sends(r) // the same round, and the call could be under way while another server is promoted
	there := func() bool {
		_, err := f.mon.GetKey(f.ctx(), keyOf("e", r.entries["e"].Gen, first))
		return err == nil
	}
	if last, _ := f.lastOf("e"); last != first || !there() {
		t.Errorf("%d is not confirmed, and the sequence is at %d; there: %v", first, last, there())
	}

	// The other server has nothing of it.
	f.forget()
	f.until("one rests again", ahead)
	if !there() {
		t.Errorf("%d is left out", first)
	}
}

// TestForgottenWhileTheNextIsSent: if a failover forgets an instant while the send of the next one is under way, both
// are there in the end.
func TestForgottenWhileTheNextIsSent(t *testing.T) {
	f, server := ownFixture(t)
	wire, s := f.wired(server, 0)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Second, CatchUp: 1000}))
	r := newRunner(s)
	f.until("one is sent, and the next can be", func() bool {
		if f.steps(r); r.entries["e"].last > r.entries["e"].Since {
			return len(r.parts[0].due()) > 0
		}
		f.sends(r)
		return false
	})
	forgotten := r.entries["e"].last
	struck, release := wire.HoldCommand(func(cmd []string) bool { return slices.Contains(cmd, sequenceOf("e")) })
	ctx, sent := f.ctx(), make(chan error, 1)
	go func() { sent <- r.parts[0].sendDue(ctx) }()
	<-struck
	f.forget()
	release()
	<-sent
	for _, at := range []int64{forgotten, forgotten + 1} {
		f.until("each is there", func() bool {
			f.steps(r)
			f.sends(r)
			_, err := f.mon.GetKey(f.ctx(), keyOf("e", r.entries["e"].Gen, at))
			return err == nil
		})
	}
}

// TestNoReplicas: while no replica of the server confirms anything, each instant is sent all the same, once, and one
// that is skipped is passed.
func TestNoReplicas(t *testing.T) {
	f := newFixture(t)
	f.pub.WithReplicaAck(1, time.Millisecond)
	release := make(chan struct{})
	defer close(release)
	got := f.consume(held("skips", release))
	entries := []Entry{{Name: "each", Every: time.Second, CatchUp: 1000},
		{Name: "third", Every: 3 * time.Second, CatchUp: 1000}}
	for _, e := range append(entries, Entry{Name: "skips", Every: time.Second, Overlap: Skip}) {
		f.must(f.s.Set(f.ctx(), e))
	}
	var heard heard
	defer f.s.ListenEvent(heard.note).Stop()
	from := f.now()
	f.run(f.s)
	f.until("some have run, and some are skipped", func() bool {
		return f.now() > from+6 && heard.count("skips", SkippedEvent) > 1
	})
	f.judge(got, entries, from)
	if n := heard.count("skips", SentEvent) + heard.count("skips", CaughtUpEvent); n != 1 {
		t.Errorf("%d messages were sent though the first lives", n-1)
	}
}

// TestNoneAfterAnUnconfirmedOneBeforeALook: after a message that too few replicas have, due or not, none is sent for
// the entry until another look: the one that was sent may be forgotten meanwhile, with the server that took it.
func TestNoneAfterAnUnconfirmedOneBeforeALook(t *testing.T) {
	f := newFixture(t)
	f.pub.WithReplicaAck(1, time.Millisecond)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Second, CatchUp: 1000}))
	for what, ahead := range map[string]time.Duration{"a moment ahead": 300 * time.Millisecond, "due": -time.Second,
		"missed": -20 * time.Second} {
		r := f.looked(f.s, false)
		e := r.entries["e"]
		before, instant := e.last, e.next
		r.reading.us = instant*1_000_000 - ahead.Microseconds()
		r.reading.at = r.reading.clock()
		if r.reading.now() >= instant*1_000_000 && ahead > 0 {
			continue // this machine has stood still
		}
		for range 3 {
			f.sends(r)
		}
		if last, _ := f.lastOf("e"); last <= before || last > instant {
			t.Errorf("%s: one was sent of %d, after %d, and the sequence is at %d", what, instant, before, last)
		}
	}
}
