package schedule

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
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
	Sentinels []string // that know the primary
	Queue     string
	Entries   int
	ClockOff  time.Duration // how far its clock is from the right one
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
		all = append(all,
			Entry{Name: fmt.Sprint("entry", i), Every: every, Offset: time.Duration(i%2) * (every - time.Second),
				Payload: fmt.Sprint(i), CatchUp: 1000})
	}
	return all
}

func childMain(text string) {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		panic(err)
	}
	cli := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: redistest.SentinelMaster,
		SentinelAddrs: spec.Sentinels})
	s := New(delayqueue.NewPublisher(spec.Queue, cli).WithReplicaAck(1, time.Second))
	s.table.clock = func() time.Time { return time.Now().Add(spec.ClockOff) }
	for _, e := range entriesOf(spec.Entries) {
		for s.Set(context.Background(), e) != nil { // while there is no primary
			time.Sleep(100 * time.Millisecond)
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
		log, err := os.ReadFile(out.Name())
		if f.must(err); strings.Contains(string(log), "panic: ") || f.Failed() {
			f.Errorf("a child says:\n%s", log)
		}
		out.Close()
	})
	return p
}

// TestReplicasAreKilled: processes with clocks 20 minutes apart are killed and frozen at random, half way the
// primary of Redis dies, and each instant makes one message.
func TestReplicasAreKilled(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t, 2, 3)
	f := fixtureOn(t, sentinel.Client(t))
	f.pub.WithReplicaAck(1, time.Second)
	entries := entriesOf(*entryCount)
	got := f.consume(nil)
	for _, e := range entries {
		f.must(f.s.Set(f.ctx(), e))
	}
	from := f.now()
	failedOver := make(chan time.Duration, 1)
	time.AfterFunc(*replicaTime/2, func() {
		old, begun := sentinel.Primary(f.ctx()), time.Now()
		old.Kill()
		for now := old; now == nil || now == old; now = sentinel.Primary(f.ctx()) {
			time.Sleep(100 * time.Millisecond)
		}
		failedOver <- time.Since(begun)
	})
	kills, freezes := f.killReplicas(childSpec{Sentinels: sentinel.Addrs(), Queue: f.name, Entries: *entryCount},
		*replicaTime)
	f.Logf("%d processes, %d killed and %d frozen, and another primary after %v", *replicaCount, kills, freezes,
		<-failedOver)
	f.judge(got, entries, from)
}

// killReplicas kills and freezes replicas at random for a while.
func (f *fixture) killReplicas(spec childSpec, d time.Duration) (kills, freezes int) {
	f.Helper()
	replicas := make([]*redistest.Process, *replicaCount)
	start := func(i int) {
		spec.ClockOff = time.Duration(i%3-1) * 10 * time.Minute
		replicas[i] = f.child(spec)
	}
	for i := range replicas {
		start(i)
	}
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(rand.N(time.Second)) {
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
	}
	return kills, freezes
}

// judge waits until the instants of now have run, and wants that each after from has, with one message.
func (f *fixture) judge(got *ledger, entries []Entry, from int64) {
	f.Helper()
	f.run(f.replica()) // whoever is left
	end, total := f.now(), 0
	for _, e := range entries {
		timing := everyTiming{int64(e.Every / time.Second), int64(e.Offset / time.Second)}
		missing := func() (all []int64) {
			instants, _ := got.of(e.Name)
			for at, _ := timing.next(from); at <= end; at, _ = timing.next(at) {
				if instants[at] == 0 {
					all = append(all, at)
				}
			}
			return all
		}
		f.until(fmt.Sprintf("%s ran at all instants from %d to %d", e.Name, from, end), func() bool {
			return len(missing()) == 0
		})
		instants, most := got.of(e.Name)
		for at := range instants {
			if before, _ := prev(timing, at+1); before != at {
				f.Errorf("%s ran at %d, which is none of its instants", e.Name, at)
			}
		}
		if most != 1 {
			f.Errorf("%s: %d messages ran for one instant", e.Name, most)
		}
		total += len(instants)
	}
	f.Logf("%d instants of %d entries, in %d deliveries", total, len(entries), len(got.payloads()))
}
