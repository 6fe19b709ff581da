package schedule

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// childEnv, when set, makes the test binary a replica.
const childEnv = "SCHEDULE_TEST_CHILD"

// A childSpec is what a replica does: it sets the entries, and runs them.
type childSpec struct {
	Addr, Queue string
	Sentinels   []string // that know the primary, instead of Addr
	Entries     int
	ClockOff    time.Duration // how far its clock is from the right one
}

var (
	replicaCount = flag.Int("replicas", 4, "processes of TestReplicasAreKilled")
	entryCount   = flag.Int("entries", 48, "entries of TestReplicasAreKilled")
	replicaTime  = flag.Duration("for", 15*time.Second, "how long TestReplicasAreKilled goes on")
)

// entriesOf are the entries of a test with many: of 1 to 3 seconds.
func entriesOf(n int) (all []Entry) {
	for i := range n {
		every := time.Duration(1+i%3) * time.Second
		all = append(all, Entry{Name: fmt.Sprint("entry", i), Every: every, Offset: time.Duration(i%2) * (every - time.Second), Payload: fmt.Sprint(i), CatchUp: 1000})
	}
	return all
}

func childMain(text string) {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		panic(err)
	}
	cli := redis.NewClient(&redis.Options{Addr: spec.Addr})
	queue := delayqueue.NewPublisher(spec.Queue, cli)
	if len(spec.Sentinels) > 0 {
		cli = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: redistest.SentinelMaster, SentinelAddrs: spec.Sentinels})
		queue = delayqueue.NewPublisher(spec.Queue, cli).WithReplicaAck(1, time.Second)
	}
	s := New(queue)
	s.table.clock = func() time.Time { return time.Now().Add(spec.ClockOff) }
	for _, e := range entriesOf(spec.Entries) {
		if err := s.Set(context.Background(), e); err != nil {
			panic(err)
		}
	}
	fmt.Println(s.Run(context.Background()))
}

func (f *fixture) child(spec childSpec) *redistest.Process {
	f.Helper()
	text, err := json.Marshal(spec)
	f.must(err)
	out, err := os.CreateTemp(f.TempDir(), "log")
	f.must(err)
	// The environment of a child is this process's own; the spec goes in front of its arguments.
	p, err := redistest.StartProcess("/usr/bin/env", []string{childEnv + "=" + string(text), os.Args[0]}, "", out)
	f.must(err)
	f.Cleanup(func() {
		p.Kill()
		if log, err := os.ReadFile(out.Name()); err == nil && len(log) > 0 {
			f.Logf("a child says:\n%s", log)
		}
		out.Close()
	})
	return p
}

// TestReplicasAreKilled: processes with clocks 20 minutes apart are killed and frozen at random, and each instant makes one message.
func TestReplicasAreKilled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.killReplicas(childSpec{Addr: shared.Addr(), Queue: f.name, Entries: *entryCount}, *replicaTime, func() {})
}

// TestReplicasAreKilledOverAFailover: the same, and the primary dies.
func TestReplicasAreKilledOverAFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t, 1, 3)
	f := fixtureOn(t, sentinel.Client(t))
	f.pub.WithReplicaAck(1, time.Second)
	f.killReplicas(childSpec{Sentinels: sentinel.Addrs(), Queue: f.name, Entries: 12}, *replicaTime, func() {
		sentinel.Primary(f.ctx()).Kill()
	})
}

// killReplicas kills and freezes replicas for a while, and does what is to happen half way.
func (f *fixture) killReplicas(spec childSpec, d time.Duration, halfWay func()) {
	f.Helper()
	entries := entriesOf(spec.Entries)
	got := f.consume(nil)
	for _, e := range entries {
		f.must(f.s.Set(f.ctx(), e))
	}
	replicas := make([]*redistest.Process, *replicaCount)
	start := func(i int) {
		spec.ClockOff = time.Duration(i%3-1) * 10 * time.Minute
		replicas[i] = f.child(spec)
	}
	for i := range replicas {
		start(i)
	}
	kills, freezes, begun := 0, 0, time.Now()
	for end := begun.Add(d); time.Now().Before(end); {
		if halfWay != nil && time.Since(begun) > d/2 {
			halfWay()
			halfWay = nil
		}
		i := rand.IntN(len(replicas))
		if rand.IntN(2) == 0 {
			replicas[i].Kill()
			kills++
			time.Sleep(rand.N(500 * time.Millisecond))
			start(i)
		} else {
			freezes++
			frozen := replicas[i]
			frozen.Pause()
			time.AfterFunc(rand.N(8*time.Second), frozen.Resume)
		}
		time.Sleep(rand.N(time.Second))
	}
	f.judge(got, entries)
	f.Logf("%d processes, %d killed and %d frozen", len(replicas), kills, freezes)
}

// judge waits until the instants of now have run, and wants that each from the first one on has, with one message.
func (f *fixture) judge(got *ledger, entries []Entry) {
	f.Helper()
	f.run(f.replica()) // whoever is left
	end := f.now()
	total := 0
	for _, e := range entries {
		timing := everyTiming{int64(e.Every / time.Second), int64(e.Offset / time.Second)}
		last, _ := timing.prev(end + 1)
		var instants map[int64]int
		var most, n int
		f.until(fmt.Sprintf("%s ran at all instants until %d", e.Name, last), func() bool {
			instants, most = got.of(e.Name)
			first := last
			for at := range instants {
				first = min(first, at)
			}
			n = 1
			for at := first; at < last && instants[at] > 0; at, _ = timing.next(at) {
				n++
			}
			return instants[last] > 0 && n == int((last-first)/timing.every)+1
		})
		total += n
		for at := range instants {
			if before, _ := timing.prev(at + 1); before != at {
				f.Errorf("%s ran at %d, which is none of its instants", e.Name, at)
			}
		}
		if most != 1 {
			f.Errorf("%s: %d messages ran for one instant", e.Name, most)
		}
	}
	f.Logf("%d instants of %d entries", total, len(entries))
}
