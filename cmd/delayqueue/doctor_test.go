package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// do changes a structure behind the library's back.
func (w *world) do(command, structure string, args ...any) {
	w.Helper()
	key := check.Queue{Prefix: w.prefix, Name: "orders"}.Key(structure)
	if err := w.cli.Do(w.Context(), append([]any{command, key}, args...)...).Err(); err != nil && !errors.Is(err, redis.Nil) {
		w.Fatal(err)
	}
}

// nobody is an id that no message has.
const nobody = "01890000-0000-7000-8000-000000000000"

// breakIt makes one of each thing that can be mended, and says what became of which message.
func (w *world) breakIt() (later, now, failed, taken, lost string) {
	hour := delayqueue.WithDelay(time.Hour)
	later = w.send("orders", "later", hour, delayqueue.WithKey("later"))
	now = w.send("orders", "now")
	w.do("ZREM", "pending", later, now)
	w.do("HDEL", "key", "later")

	failed = w.kill("orders", "no", "failed")[0]
	w.do("ZREM", "garbage", failed)

	taken = w.send("orders", "taken", hour, delayqueue.WithKey("taken"))
	w.do("ZREM", "pending", taken)
	w.do("HDEL", "key", "taken")
	w.do("HSET", "fail", taken, "2 0 0 5 \x1f"+strings.Repeat("\x1e5 0 earlier", 5)) // superseded, and it was kept
	w.do("HSET", "state", "overtaken", 1)
	w.send("orders", "takes", hour, delayqueue.WithKey("taken"))

	lost = w.send("orders", "lost", hour, delayqueue.WithKey("lost"))
	w.do("HDEL", "msg", lost)
	w.do("RPUSH", "ready", "2:"+nobody)
	w.do("HSET", "fail", nobody[:35]+"1", "2 0 0 5 ")
	w.do("HSET", "key", "nobody's", nobody[:35]+"2")
	w.do("HSET", "result", nobody[:35]+"3", "of nobody")
	w.do("HSET", "parts", nobody[:35]+"5:2", "of nobody")
	for range 2 {
		w.send("orders", "part", hour, delayqueue.WithKey("left", delayqueue.Append), delayqueue.WithMaxParts(2))
	}
	w.do("HSET", "parts", ":left", nobody[:35]+"6")
	w.do("ZADD", "done", 5, nobody[:35]+"4")
	w.do("HSET", "state", "done", 5)
	w.do("ZADD", "wake", 5, "stray", 7, "w")
	return later, now, failed, taken, lost
}

func tellDoctor(w *world) {
	w.send("orders", "sound", delayqueue.WithDelay(time.Hour))
	w.contains(w.must("doctor", "orders"), "holds 1 message", "nothing is wrong")
	w.contains(w.must("doctor", "orders", "--repair"), "nothing is wrong")
	later, now, failed, taken, lost := w.breakIt()
	before := w.read()

	r := w.run("doctor", "orders")
	w.contains(r.out, "no place (4)", "no envelope (3)", "stray record (1)", "stray result (1)", "stray part (1)", "stray list (1)", "unlisted group (1)", "stray key entry (1)",
		"stray alarm (2)", lost, "what it means", "--repair mends it")
	if r.code != exitUnsound {
		w.Errorf("exit code %d, want %d", r.code, exitUnsound)
	}
	r = w.run("doctor", "orders", "--json")
	d := decode[diagnosis](w, r.out)[0]
	if r.code != exitUnsound || len(d.Findings) < 10 || d.Messages != 7 || len(d.Repairs) != 0 || d.Left != nil {
		w.Errorf("doctor --json: %d %+v", r.code, d)
	}
	w.refused(exitUnconfirmed, "add --yes", "doctor", "orders", "--repair")
	t := w.terminal("doctor", "orders", "--repair")
	t.sees("[y/N]")
	w.contains(t.all(), "the repair would do this", "bring back message ", "drop from pending: "+lost, "free key lost", "free key nobody's")
	t.types("n\r")
	t.ends(exitUnconfirmed)
	if after := w.read(); !slices.Equal(after.Breaches(), before.Breaches()) {
		w.Fatalf("it wrote before anybody said yes:\n%s", after.Dump())
	}

	t = w.terminal("doctor", "orders", "--repair")
	t.sees("[y/N]")
	t.types("y\r")
	t.ends(0)
	t.sees("the queue is sound now")
	w.contains(t.all(), "1 message went to garbage, because another live message has the key")
	s := w.sound("orders")
	if got := s.Fail[taken].Errors; len(got) != 5 || !strings.Contains(got[0], "found in no structure") ||
		got[1] != "earlier" || got[4] != "earlier" || s.Fail[failed].Error != "no" {
		w.Errorf("errors %+v, %+v", got, s.Fail[failed])
	}
	for id, want := range map[string]string{later: "retry", now: "retry", failed: "retry", taken: "garbage", lost: "gone"} {
		if got := s.Where(id); got != want {
			w.Errorf("%s is in %s, want %s:\n%s", id, got, want, s.Dump())
		}
	}
	for _, e := range s.Retry { // never early
		if due := s.Messages[e.ID].Due; e.Score < due || e.ID == later && e.Score != due {
			w.Errorf("%s is due at %d, comes at %d", e.ID, due, e.Score)
		}
		if had := before.Fail[e.ID].Delivery; e.Delivery != max(had, 1)+1 {
			w.Errorf("%s comes as delivery %d, and had been at %d", e.ID, e.Delivery, had)
		}
	}
	if s.Keys["later"] != later || s.Keys["lost"] != "" {
		w.Errorf("keys: %v", s.Keys)
	}

	// It is handled as any other.
	handled := make(chan string, 10)
	w.consume("orders", func(_ context.Context, m *delayqueue.Message) error {
		handled <- m.ID
		return nil
	})
	got := []string{<-handled, <-handled, <-handled}
	if !slices.Contains(got, now) || !slices.Contains(got, failed) {
		w.Errorf("handled %v, want %s and %s", got, now, failed)
	}
}

func (w *world) read() *check.State {
	w.Helper()
	s, err := check.Read(w.Context(), w.cli, w.prefix, "orders")
	ok(w, err)
	return s
}

// Nobody is woken for what comes back while the queue is paused.
func tellDoctorPaused(w *world) {
	id := w.send("orders", "a")
	w.do("ZREM", "pending", id)
	w.do("DEL", "wake")
	w.do("HDEL", "state", "armed")
	until := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	ok(w, w.monitor("orders").PauseUntil(w.Context(), until))
	w.contains(w.must("doctor", "orders", "--repair", "--yes"), "the queue is sound now")
	if s := w.sound("orders"); s.Wake != until.UnixMicro() {
		w.Errorf("the alarm is at %d, want %d", s.Wake, until.UnixMicro())
	}
}

// What was acked keeps its key, also from what the doctor brings back.
func tellDoctorHeld(w *world) {
	w.send("orders", "first", delayqueue.WithKey("k"), delayqueue.WithKeyHold(time.Hour))
	q := delayqueue.NewQueue("orders", w.cli, nil, delayqueue.UseCustomPrefix(w.prefix)).WithLogger(slog.New(slog.DiscardHandler))
	ok(w, errOf(q.WithHandler(func(context.Context, *delayqueue.Message) error { return nil }).Drain(w.Context())))
	w.refused(exitNotFound, "it is held until ", "get", "orders", "k", "--key")
	w.do("ZREM", "held", "k") // so that the next one is stored
	again := w.send("orders", "again", delayqueue.WithKey("k"))
	w.do("ZADD", "held", time.Now().Add(time.Hour).UnixMicro(), "k")
	w.do("HSET", "key", "k", "acked:"+nobody)
	w.do("ZREM", "pending", again)
	w.must("doctor", "orders", "--repair", "--yes")
	s := w.sound("orders")
	if len(s.Garbage) != 1 || s.Garbage[0].ID != again || s.Keys["k"] != "acked:"+nobody {
		w.Errorf("garbage %v, keys %v", s.Garbage, s.Keys)
	}
	w.do("HSET", "key", "k", again) // as if it had died as what follows the first
	w.must("doctor", "orders", "--repair", "--yes")
	if s = w.sound("orders"); s.Keys["k"] != "acked:"+again {
		w.Errorf("keys %v", s.Keys)
	}
}

func tellDoctorCannot(w *world) {
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
	w.do("HSET", "msg", nobody, "no envelope")
	w.contains(w.run("doctor", "orders", "--repair", "--yes").out, "repaired 1 thing", "2 findings left") // the books are right again
	w.do("PEXPIRE", "state", 1_000_000)
	w.do("SET", "other", "x") // the structure that is none
	r := w.run("doctor", "orders", "--repair", "--yes")
	w.contains(r.out, "bad envelope (1)", "no place (1)", "time to live (1)", "stray key (1)", "nothing of it can be repaired safely")
	if r.code != exitUnsound {
		w.Errorf("exit code %d, want %d", r.code, exitUnsound)
	}
	w.do("DEL", "msg")
	w.do("SET", "msg", "x")
	w.contains(w.run("doctor", "orders").out, "wrong type (1)", "the key is a string, want a hash")
	w.refused(exitFailed, "belongs to another program", "get", "orders", nobody)
}

// What a newer version keeps in a structure of its own looks lost from here, and is left alone: brought back, it would
// be delivered again.
func tellDoctorNewer(w *world) {
	id := w.send("orders", "kept elsewhere", delayqueue.WithDelay(time.Hour))
	keep := func(layout string) {
		w.do("ZREM", "pending", id)
		w.do("ZADD", "parked", 5, id)
		w.do("HSET", "state", "layout", layout)
	}
	keep("1")
	before := w.read()
	t := w.terminal("doctor", "orders", "--repair")
	t.sees("[y/N]")
	w.contains(t.all(), "no place (1)", "bring back message "+id)
	keep("2") // while it is being thought about
	t.types("y\r")
	t.ends(exitRefused)
	w.contains(t.all(), "upgrade this program")

	r := w.run("doctor", "orders")
	w.contains(r.out, "unknown layout (1)", `field layout is "2"`, "Upgrade this program", "no place (1)")
	if r.code != exitUnsound {
		w.Errorf("exit code %d, want %d", r.code, exitUnsound)
	}
	for _, layout := range []string{"2", "x", ""} {
		keep(layout)
		w.refused(exitRefused, "upgrade this program", "doctor", "orders", "--repair", "--yes")
		for _, args := range [][]string{{"cancel", "orders", "--all"}, {"requeue", "orders", "--all"}, {"run", "orders", "--all"},
			{"purge", "orders", "--all"}, {"purge", "orders", "--whole-queue"}} {
			w.refused(exitRefused, "layout of the queue is unknown", append(args, "--yes")...)
		}
	}
	r = w.run("doctor", "orders", "--repair", "--yes", "--json")
	if d := decode[diagnosis](w, r.out)[0]; r.code != exitRefused || len(d.Findings) == 0 || len(d.Repairs) != 0 {
		w.Errorf("doctor --repair --json: %d %+v", r.code, d)
	}
	if after := w.read(); after.Where(id) != "gone" || len(after.Messages) != len(before.Messages) || len(after.Fail) != 0 {
		w.Errorf("it was touched:\n%s", after.Dump())
	}
	w.do("ZADD", "pending", before.Messages[id].Due, id) // as whoever upgraded this program may do
	w.do("DEL", "parked")
	w.do("HDEL", "state", "layout")
	w.sound("orders")
}

// What stands still is found too, and foreign entries can be removed.
func tellDoctorStandstill(w *world) {
	id := w.send("orders", "a")
	w.must("pause", "orders")
	w.contains(w.must("doctor", "orders"), "nothing is wrong with it") // it is paused, and so it is meant to wait
	w.must("resume", "orders")
	r := w.run("doctor", "orders")
	w.contains(r.out, "due, and no consumer (1)", "no consumers, ", "Start a consumer")
	if r.code != exitUnsound {
		w.Errorf("exit code %d", r.code)
	}
	w.throttledForLong()
	other := w.send("orders", "b")
	ago := time.Now().Add(-25 * time.Hour)
	w.lease("c:1", ago, id, other)
	w.lease("c:2", ago, nobody)                              // nothing is held of it
	w.lease("c:3", time.Now(), w.send("orders", "c"))        // it has only just ended
	w.do("ZADD", "unack", ago.UnixMicro(), "overrun:"+other) // no message
	w.contains(w.run("doctor", "orders").out, "lease long over (1)", "message "+id+" and 1 other ended 25h")

	w.do("ZADD", "retry", 5, "junk\xff\x1b[31m")
	w.do("RPUSH", "ready", "2:nobody")
	r = w.run("doctor", "orders", "--repair", "--yes")
	w.contains(r.out, "malformed tag (2)", "drop from ready: 2:nobody", "repaired 2 things", "the queue is sound now")
	if strings.Contains(r.out, "\x1b") {
		w.Errorf("%q", r.out)
	}
	w.sound("orders")
}

// tellDoctorLane: a message that has waited for hours for others of its lane is a finding, with the name of the lane.
func tellDoctorLane(w *world) {
	started, release := make(chan struct{}), make(chan struct{})
	w.consume("orders", func(context.Context, *delayqueue.Message) error {
		close(started)
		<-release
		return nil
	}, func(q *delayqueue.DelayQueue) { q.WithLease(time.Minute) })
	w.Cleanup(func() { close(release) })
	w.send("orders", "a", delayqueue.WithLane("customer-42"))
	<-started
	id := w.send("orders", "b", delayqueue.WithLane("customer-42"))
	w.heardOf("orders")
	w.contains(w.must("stats", "orders"), "fine")
	w.do("ZADD", "waiting", time.Now().Add(-2*time.Hour).UnixMicro(), id)
	r := w.run("doctor", "orders")
	w.contains(r.out, "waits long for its lane (1)", "messages of lane customer-42 wait for others of it since", "delayqueue lanes skip lets")
	if stats := decode[statsJSON](w, w.must("stats", "orders", "--json")); stats[0].Code != "lane" || stats[0].Level != "warning" {
		w.Errorf("stats --json: %+v", stats)
	}
}

// throttledForLong: handlers of a queue that has consumers say so again and again. A fetch heeds throttled only if limits is there.
func (w *world) throttledForLong() {
	key := func(name string) string { return "{" + w.prefix + ":slow}:" + name }
	w.consumeNothing("slow")
	for _, args := range [][]any{
		{"HSET", key("state"), "limits", "", "throttled", fmt.Sprintf("%d %d", time.Now().Add(-time.Minute).UnixMicro(),
			time.Now().Add(10*time.Minute).UnixMicro())},
		{"ZADD", key("pending"), time.Now().Add(-2 * time.Hour).UnixMicro(), w.send("slow", "a", delayqueue.WithDelay(time.Hour))},
	} {
		ok(w, w.cli.Do(w.Context(), args...).Err())
	}
	w.contains(w.run("doctor", "slow").out, "throttled for long (1)", "and 2h", "delayqueue limits lift ends it")
}

// A server that may evict is said to.
func TestDoctorEviction(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	w := newWorld(t, "redis://"+s.Addr(), s.Client(t))
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
	w.contains(w.run("doctor", "orders").out, "server in trouble (1)", "Eviction: allkeys-lru", "noeviction")
	ok(t, w.cli.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	w.contains(w.must("doctor", "orders"), "nothing is wrong")
}

// The checks of the repair are made where it writes: consumers go on, and nothing is handled twice.
func tellDoctorBusy(w *world) {
	const n = 2000
	handled := make(chan string, 2*n)
	w.sendMany("orders", n, 2*time.Second)
	before := w.read()
	for _, e := range before.Pending[:n/2] {
		w.do("ZREM", "pending", e.Tag)
	}
	w.consume("orders", func(_ context.Context, m *delayqueue.Message) error {
		handled <- m.ID
		return nil
	})
	w.heardOf("orders")
	var runs sync.WaitGroup
	for range 3 { // at once, each by what it saw
		runs.Go(func() {
			if r := w.run("doctor", "orders", "--repair", "--yes"); r.code != 0 {
				w.Errorf("%+v", r)
			}
		})
	}
	runs.Wait()
	w.until("all are settled", func() bool { return len(w.read().Messages) == 0 })
	w.once(handled, n)
	w.sound("orders")
}

func tellLarge(w *world) {
	const some, large = 20_000, 100_000
	w.sendMany("orders", some, time.Hour)
	t := w.terminal("doctor", "orders")
	t.wrote("reading") // in pages, so nobody is asked
	t.ends(0)
	t.sees("nothing is wrong with it")
	w.sendMany("orders", large+1-some, time.Hour)

	// A list that is interrupted keeps what it found, and says how to go on.
	t = w.terminal("ls", "orders", "pending", "--contains", "p1", "--limit", "1000000", "--json")
	t.sees("payload")
	t.types(ctrlC)
	t.ends(exitInterrupted)
	w.contains(t.all(), "to go on from there: delayqueue ls orders pending", "--cursor ")

	// What is only counted yet has done nothing.
	t = w.terminal("cancel", "orders", "--all")
	t.wrote("counting")
	t.types(ctrlC)
	t.ends(exitInterrupted)
	w.contains(t.all(), "nothing was deleted: it was still being counted")
	if all := t.all(); strings.Contains(all, "this does the rest") || w.counts("orders").Pending != large+1 {
		w.Errorf("a count that is interrupted says:\n%s", all)
	}

	// Bulk work stops between two steps, says how far it came, and can be called again.
	t = w.terminal("cancel", "orders", "--all", "--yes")
	t.wrote("deleting")
	w.until("a step is done", func() bool { return w.counts("orders").Pending <= large })
	t.types(ctrlC)
	t.ends(exitInterrupted)
	left := int(w.counts("orders").Pending)
	w.contains(t.screen.String(), "deleted "+plural(large+1-left, "message"), "interrupted", "this does the rest")
	if left == 0 || left == large+1 {
		w.Errorf("%d messages are left of %d", left, large+1)
	}
	w.contains(w.must("cancel", "orders", "--all", "--yes"), "deleted "+plural(left, "message"))
}

func TestEveryFindingIsExplained(t *testing.T) {
	source, err := os.ReadFile("../../internal/check/finding.go")
	ok(t, err)
	own := []check.Kind{noConsumer, deadLease, unwell, throttled, longLane, schedulesNotRun, scheduleStuck}
	for _, k := range own {
		if a := advices[k]; a.means == "" || a.do == "" || a.repair {
			t.Errorf("%q: %+v", k, a)
		}
	}
	kinds := regexp.MustCompile(`Kind += +"(.+)"`).FindAllSubmatch(source, -1)
	for _, kind := range kinds {
		k := check.Kind(kind[1])
		if a := advices[k]; k != check.Leftover && (a.means == "" || a.do == "" || a.repair != strings.Contains(a.do, byRepair)) {
			t.Errorf("%q: %+v", k, a)
		}
	}
	if len(kinds)+len(own) != len(advices)+1 {
		t.Errorf("%d kinds, %d advices", len(kinds), len(advices))
	}
}
