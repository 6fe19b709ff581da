package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

const (
	settleLimit = 45 * time.Second // for the queue to get emptier when all is sent and nothing strikes any more
	memorySlack = 2 << 20          // bytes that a server may hold beyond what it did before, garbage apart
	poll        = 100 * time.Millisecond
)

// A trial is one run of a scenario. To redistest it is a test: it embeds none, and has the
// methods that are called there.
type trial struct {
	testing.TB
	*scenario
	ctx   context.Context
	dir   string // of ledgers and logs
	books *books
	load  load

	server    *redistest.Server // the one, where there is one
	serverDir string
	wire      *redistest.Wire // before it, if programs go over one
	gauge     *gauge
	sentinel  *redistest.Sentinel
	cluster   *redistest.Cluster
	redis     reach // for programs
	admin     redis.UniversalClient
	consumers []*program
	producers []*program
	started   int               // consumers
	sending   int               // producers that were started
	begun     int64             // unix us at which sending began
	aside     int               // messages that stay in the queue for good
	tolerated []string          // see rules
	made      int64             // messages that were put into Redis by hand
	clock     func(int64) int64 // see evidence
	offset    *atomic.Int64     // of the embedded server's clock, ns
	steps     []clockStep
	back      time.Duration   // by which an operator made messages due sooner that were due too late
	readings  []reading       // of what was handed out
	lost      map[string]int  // replies, by script
	kept      map[string]bool // ids that Redis came back with last

	mu       sync.Mutex
	strikes  []strike
	problems []string
	pulses   []pulse // that were handled
	cleanups []func()
}

// A program is a process of this binary.
type program struct {
	name    string
	share   int // see order
	process *redistest.Process
}

// runTrial runs a scenario to its end.
func runTrial(ctx context.Context, s *scenario) (*verdict, error) {
	if s.run != nil {
		return s.run(ctx)
	}
	dir, err := os.MkdirTemp("", "faults-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	t := &trial{scenario: s, ctx: ctx, dir: dir, books: &books{dir: dir}, load: usual}
	if s.load != nil {
		s.load(&t.load)
	}
	var v *verdict
	over := make(chan struct{})
	go func() { // Fatal ends this goroutine, as it does a test's
		defer close(over)
		defer t.cleanUp()
		v = t.run()
	}()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-over:
			t.readBooks()
			if v == nil {
				v = &verdict{struck: len(t.strikes)}
			}
			v.problems = append(t.problems, v.problems...)
			return v, ctx.Err()
		case <-tick.C:
			t.readBooks()
		}
	}
}

// readBooks reads what programs have noted meanwhile, which the trial goes by.
func (t *trial) readBooks() {
	if err := t.books.catchUp(); err != nil {
		t.Errorf("%v", err)
	}
}

// run is the course of every trial.
func (t *trial) run() *verdict {
	t.gauge = startGauge(t)
	if t.setUp != nil {
		t.setUp(t)
	} else {
		oneServer()(t)
	}
	memory := t.memory()
	t.startPrograms()
	sending := func() bool {
		return slices.ContainsFunc(t.producers, func(p *program) bool { return !p.process.Ended() })
	}
	t.await("messages are handled", settleLimit, func() bool { return t.books.count(ended) > t.load.Messages/40 })
	if t.hit != nil {
		for n := 0; sending() && (t.times == 0 || n < t.times); n++ {
			t.hit(t)
			t.wait(t.every)
		}
	}
	t.await("all is sent", settleLimit+t.load.Over, func() bool { return !sending() })
	var states []*whole // of all queues
	// A slow machine has more left when all is sent, so only a queue that gets no emptier is wrong.
	for empty, least := false, math.MaxInt; !empty; {
		t.await("the queue is empty, or has fewer messages than before", settleLimit, func() bool {
			states = t.readAll()
			left := 0
			for _, s := range states {
				left += len(s.Pending) + len(s.Ready) + len(s.Unack) + len(s.Retry) + len(s.Waiting)
			}
			empty = states != nil && left == t.aside
			fewer := states != nil && left < least
			if fewer {
				least = left
			}
			return empty || fewer
		})
	}
	t.await("the server's memory is back", settleLimit, func() bool {
		return t.memory() <= memory+memorySlack+int64(len(states[0].Messages))*1024
	})
	t.await("every consumer has as many goroutines as in the beginning", settleLimit, t.calm(time.Now().UnixMicro()))
	for _, p := range t.consumers {
		p.process.Terminate()
	}
	t.await("the consumers end", settleLimit, func() bool {
		return !slices.ContainsFunc(t.consumers, func(p *program) bool { return !p.process.Ended() })
	})
	if states = t.readAll(); states == nil {
		t.Fatal("the queue cannot be read")
	}
	if err := t.books.catchUp(); err != nil {
		t.Fatal(err)
	}
	return t.weigh(states)
}

// weigh judges what became of the messages, when all has ended.
func (t *trial) weigh(states []*whole) *verdict {
	rules := t.rules
	rules.lease, rules.tolerated = t.load.Lease, append(rules.tolerated, t.tolerated...)
	if n := t.load.Entries; n > 0 {
		rules.instants = instantsOf(n, t.begun/1_000_000, (t.begun+t.load.Over.Microseconds())/1_000_000)
	}
	v := &verdict{}
	for i, state := range states {
		state.Expect(-t.made)
		v.add(judge(evidence{entries: t.broughtBack(t.entriesOf(i)), strikes: t.strikes, state: state, rules: rules,
			clock:   t.clock,
			results: t.sumsKept(), gauge: t.gauge}))
	}
	if t.hit != nil && v.struck == 0 {
		v.problem("the fault never struck")
	}
	t.wantQuits(v)
	if crashes := t.logged("panic: ") + t.logged("fatal error: "); crashes > 0 {
		v.problem("a program crashed")
	}
	if t.check != nil {
		t.check(t, v)
	}
	return v
}

// startPrograms starts consumers, and producers when those work.
func (t *trial) startPrograms() {
	for range consumers {
		t.startConsumer()
	}
	t.await("every consumer works", settleLimit, func() bool { return t.books.count(standing) >= 2*consumers })
	t.begun = time.Now().UnixMicro()
	for share := range t.load.Producers {
		t.startProducer(share)
	}
}

// serve makes a server the one that programs use.
func (t *trial) serve(s *redistest.Server) {
	t.server, t.redis = s, reach{Addrs: []string{s.Addr()}}
	t.admin = s.Client(t)
	dir, err := t.admin.ConfigGet(t.ctx, "dir").Result()
	if err != nil {
		t.Fatal(err)
	}
	t.serverDir = dir["dir"]
}

// startConsumer starts one more consumer.
func (t *trial) startConsumer() {
	t.started++
	t.consumers = append(t.consumers, t.start(order{Role: consumer, Name: consumer + strconv.Itoa(t.started)}))
}

// startProducer starts one more producer.
func (t *trial) startProducer(share int) {
	t.sending++
	p := t.start(order{Role: producer, Name: producer + strconv.Itoa(t.sending), Begun: t.begun, Share: share})
	t.producers = append(t.producers, p)
}

// killProducer kills a producer, and starts another in its place. One that has ended has nothing left to send.
func (t *trial) killProducer() {
	i := rand.IntN(len(t.producers))
	p := t.producers[i]
	t.strike(strike{who: p.name, killed: true}, p.process.Kill)
	t.producers = slices.Delete(t.producers, i, i+1)
	t.startProducer(p.share)
}

// wantQuits wants every program that was not killed to have closed all in good order.
func (t *trial) wantQuits(v *verdict) {
	closed := map[string]bool{}
	for _, e := range t.books.all() {
		closed[e.who] = closed[e.who] || e.Kind == quit
	}
	for _, p := range slices.Concat(t.consumers, t.producers) {
		if !closed[p.name] {
			log, _ := os.ReadFile(filepath.Join(t.dir, p.name+".log")) // one that is not there says nothing
			lines := strings.Split(strings.TrimSpace(string(log)), "\n")
			v.problem("%s was not closed in good order; the end of its log: %q", p.name, lines[len(lines)-1])
		}
	}
}

// calm says whether each consumer that has not ended has counted, since an instant, no more goroutines than it may have
// more than at first. A consumer that replaced another one may have begun late.
func (t *trial) calm(since int64) func() bool {
	return func() bool {
		first, calm := map[string]int{}, map[string]bool{}
		for _, e := range t.books.all() {
			if e.Kind != standing {
				continue
			}
			first[e.who] = cmp.Or(first[e.who], e.Count)
			calm[e.who] = calm[e.who] || e.At >= since && e.Count <= first[e.who]+goroutineSlack+t.rules.grows
		}
		return !slices.ContainsFunc(t.consumers, func(p *program) bool { return !calm[p.name] && !p.process.Ended() })
	}
}

// replace starts a consumer in place of one that has ended.
func (t *trial) replace(p *program) {
	t.consumers = slices.DeleteFunc(t.consumers, func(q *program) bool { return q == p })
	t.startConsumer()
}

// start starts a program, which is killed at the end if it has not ended.
func (t *trial) start(o order) *program {
	o.Dir, o.Redis, o.Load = t.dir, t.redis, t.load
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.dir, o.Name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the program has its own
	process, err := redistest.StartProcess(path, []string{"-role", string(text)}, t.dir, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(process.Kill)
	return &program{o.Name, o.Share, process}
}

// strike lets a fault strike, and notes when, unless it says since when it has struck.
func (t *trial) strike(st strike, hit func()) {
	st.from = cmp.Or(st.from, time.Now().UnixMicro())
	hit()
	st.kept = t.kept
	st.why = cmp.Or(st.why, t.rules.duplicate)
	st.to = time.Now().UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.strikes = append(t.strikes, st)
}

// wait lets time pass, and ends the trial if it is interrupted.
func (t *trial) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.Fatal(t.ctx.Err())
	}
}

// await waits for something; a trial in which it does not happen ends.
func (t *trial) await(what string, limit time.Duration, ok func() bool) {
	begun := time.Now()
	for !ok() {
		t.replaceKilled()
		if took := time.Since(begun); took > limit && took > limit+t.gauge.allowance(begun.UnixMicro(), took) {
			t.Errorf("did not happen within %v: %s (%s)", limit, what, counts(t.read()))
			t.dump()
			runtime.Goexit()
		}
		t.wait(poll)
	}
}

// memory is what the server's data take, 0 where there is more than one server.
func (t *trial) memory() int64 {
	if t.server == nil {
		return 0
	}
	info, err := t.admin.InfoMap(t.ctx, "memory").Result()
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if err != nil {
		t.Fatalf("INFO memory: %v", err)
	}
	return n
}

// logged counts the lines of the programs' logs that hold a text.
func (t *trial) logged(text string) (n int) {
	paths, _ := filepath.Glob(filepath.Join(t.dir, "*.log")) // the pattern is well formed
	for _, path := range paths {
		log, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n += strings.Count(string(log), text)
	}
	return n
}

// dump adds the ends of the programs' logs to what is wrong.
func (t *trial) dump() {
	paths, _ := filepath.Glob(filepath.Join(t.dir, "*.log"))
	for _, path := range paths {
		log, _ := os.ReadFile(path)
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		t.Errorf("log of %s:\n%s", filepath.Base(path), strings.Join(lines[max(0, len(lines)-8):], "\n"))
	}
}

func (t *trial) cleanUp() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

// What redistest and its like call of a test.

func (t *trial) Helper()             {}
func (t *trial) Name() string        { return t.name }
func (t *trial) Failed() bool        { return false }
func (t *trial) Logf(string, ...any) {}
func (t *trial) Cleanup(f func())    { t.cleanups = append(t.cleanups, f) }

func (t *trial) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, fmt.Sprintf(format, args...))
}

func (t *trial) Fatal(args ...any) {
	t.Errorf("%s", fmt.Sprint(args...))
	runtime.Goexit()
}

func (t *trial) Fatalf(format string, args ...any) { t.Fatal(fmt.Sprintf(format, args...)) }
