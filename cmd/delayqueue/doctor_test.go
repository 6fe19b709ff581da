package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// nobody is an id that no message has.
const nobody = "01890000-0000-7000-8000-000000000000"

// breakIt makes one of each thing that can be mended, and says what became of which message.
func (w *world) breakIt() (later, now, failed, taken, lost string) {
	later = w.send("orders", "later", inAnHour, delayqueue.WithKey("later"))
	now = w.send("orders", "now")
	w.do("ZREM", "pending", later, now)
	w.do("HDEL", "key", "later")

	failed = w.kill("orders", "no", "failed")[0]
	w.do("ZREM", "garbage", failed)

	taken = w.send("orders", "taken", inAnHour, delayqueue.WithKey("taken"))
	w.do("ZREM", "pending", taken)
	w.do("HDEL", "key", "taken")
	w.do("HSET", "fail", taken, "2 0 0 5 \x1f"+strings.Repeat("\x1e5 0 earlier", 5)) // superseded, and it was kept
	w.do("HSET", "state", "overtaken", 1)
	w.send("orders", "takes", inAnHour, delayqueue.WithKey("taken"))

	lost = w.send("orders", "lost", inAnHour, delayqueue.WithKey("lost"))
	w.do("HDEL", "msg", lost)
	w.do("RPUSH", "ready", "2:"+nobody)
	w.do("HSET", "fail", nobody[:35]+"1", "2 0 0 5 ")
	w.do("HSET", "key", "nobody's", nobody[:35]+"2")
	w.do("HSET", "result", nobody[:35]+"3", "of nobody")
	w.do("HSET", "parts", nobody[:35]+"5:2", "of nobody")
	for range 2 {
		w.send("orders", "part", inAnHour, delayqueue.WithKey("left", delayqueue.Append), delayqueue.WithMaxParts(2))
	}
	w.do("HSET", "parts", ":left", nobody[:35]+"6")
	w.do("ZADD", "done", 5, nobody[:35]+"4")
	w.do("HSET", "state", "done", 5)
	w.do("ZADD", "wake", 5, "stray", 7, "w")
	return later, now, failed, taken, lost
}

func tellDoctor(w *world) {
	w.send("orders", "sound", inAnHour)
	w.contains(w.must("doctor", "orders"), "holds 1 message", "its data is sound")
	w.contains(w.must("doctor", "orders", "--repair"), "its data is sound")
	later, now, failed, taken, lost := w.breakIt()
	before := w.read()

	w.exits(exitUnsound, "doctor", "orders").shows("no place (4)", "no envelope (3)", "stray record (1)",
		"stray result (1)", "stray part (1)",
		"stray list (1)", "unlisted group (1)", "stray key entry (1)", "stray alarm (2)", lost, "what it means",
		"--repair mends it")
	d := decode[diagnosis](w, w.exits(exitUnsound, "doctor", "orders", "--json").out)[0]
	if len(d.Findings) < 10 || d.Messages != 7 || len(d.Repairs) != 0 || d.Left != nil {
		w.Errorf("doctor --json: %+v", d)
	}
	w.refused(exitUnconfirmed, "add --yes", "doctor", "orders", "--repair")
	t := w.answers("n\r", exitUnconfirmed, "doctor", "orders", "--repair")
	w.contains(t.all(), "the repair would do this", "bring back message ", "drop from pending: "+lost, "free key lost",
		"free key nobody's")
	if after := w.read(); !slices.Equal(after.Breaches(), before.Breaches()) {
		w.Fatalf("it wrote before anybody said yes:\n%s", after.Dump())
	}

	t = w.answers("y\r", 0, "doctor", "orders", "--repair")
	t.sees("the queue is sound now")
	w.contains(t.all(), "1 message went to garbage, because another live message has the key")
	s := w.sound("orders")
	if got := s.Fail[taken].Errors; len(got) != 5 || !strings.Contains(got[0], "found in no structure") ||
		got[1] != "earlier" || got[4] != "earlier" || s.Fail[failed].Error != "no" {
		w.Errorf("errors %+v, %+v", got, s.Fail[failed])
	}
	w.places(s, map[string]string{later: "retry", now: "retry", failed: "retry", taken: "garbage", lost: "gone"})
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
	handled := w.handled("orders")
	got := []string{(<-handled).ID, (<-handled).ID, (<-handled).ID}
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
	equal(w, "the alarm", w.sound("orders").Wake, until.UnixMicro())
}

// What was acked keeps its key, also from what the doctor brings back.
func tellDoctorHeld(w *world) {
	w.send("orders", "first", delayqueue.WithKey("k"), delayqueue.WithKeyHold(time.Hour))
	ok(w, errOf(w.consumer("orders", func(context.Context, *delayqueue.Message) error { return nil }).Drain(w.Context())))
	w.refused(exitNotFound, "it is held until ", "get", "orders", "k", "--key")
	w.do("ZREM", "holds", "k") // so that the next one is stored
	again := w.send("orders", "again", delayqueue.WithKey("k"))
	w.do("ZADD", "holds", time.Now().Add(time.Hour).UnixMicro(), "k")
	w.do("HSET", "key", "k", "acked:"+nobody)
	w.do("ZREM", "pending", again)
	w.must("doctor", "orders", "--repair", "--yes")
	s := w.sound("orders")
	w.places(s, map[string]string{again: "garbage"})
	equal(w, "the key", s.Keys["k"], "acked:"+nobody)
	w.do("HSET", "key", "k", again) // as if it had died as what follows the first
	w.must("doctor", "orders", "--repair", "--yes")
	equal(w, "the key", w.sound("orders").Keys["k"], "acked:"+again)
}

func tellDoctorCannot(w *world) {
	w.send("orders", "a", inAnHour)
	w.do("HSET", "msg", nobody, "no envelope")
	w.contains(w.run("doctor", "orders", "--repair", "--yes").out, "repaired 1 thing",
		"2 findings left") // the books are right again
	w.do("PEXPIRE", "state", 1_000_000)
	w.do("SET", "other", "x") // the structure that is none
	w.exits(exitUnsound, "doctor", "orders", "--repair", "--yes").shows("bad envelope (1)", "no place (1)",
		"time to live (1)", "stray key (1)",
		"nothing of it can be repaired safely")
	w.do("DEL", "msg")
	w.do("SET", "msg", "x")
	w.contains(w.run("doctor", "orders").out, "wrong type (1)", "the key is a string, want a hash")
	w.refused(exitFailed, "belongs to another program", "get", "orders", nobody)
}

// What a newer version keeps in a structure of its own looks lost from here, and is left alone: brought back, it would
// be delivered again.
func tellDoctorNewer(w *world) {
	id := w.send("orders", "kept elsewhere", inAnHour)
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

	w.exits(exitUnsound, "doctor", "orders").shows("unknown layout (1)", `field layout is "2"`, "Upgrade this program",
		"no place (1)")
	for _, layout := range []string{"2", "x", ""} {
		keep(layout)
		w.refused(exitRefused, "upgrade this program", "doctor", "orders", "--repair", "--yes")
	}
	w.refused(exitRefused, "layout of the queue is unknown", "cancel", "orders", "--all", "--yes")
	w.refused(exitRefused, "layout of the queue is unknown", "delete", "orders", "--whole-queue", "--yes")
	r := w.exits(exitRefused, "doctor", "orders", "--repair", "--yes", "--json")
	if d := decode[diagnosis](w, r.out)[0]; len(d.Findings) == 0 || len(d.Repairs) != 0 {
		w.Errorf("doctor --repair --json: %+v", d)
	}
	if after := w.read(); after.Where(id) != "gone" || len(after.Messages) != len(before.Messages) ||
		len(after.Fail) != 0 {
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
	w.contains(w.must("doctor", "orders"), "its data is sound") // it is paused, and so it is meant to wait
	w.must("resume", "orders")
	w.exits(exitUnsound, "doctor", "orders").shows("due, and no consumer (1)", "no consumers, ", "Start a consumer")
	w.throttledForLong()
	other := w.send("orders", "b")
	ago := time.Now().Add(-25 * time.Hour)
	w.lease("c:1", ago, id, other)
	w.lease("c:2", ago, nobody)                                     // nothing is held of it
	w.lease("c:3", time.Now().Add(longOver), w.send("orders", "c")) // it may have ended, but not for long
	w.contains(w.run("doctor", "orders").out, "lease long over (1)", "message "+id+" and 1 other ended 25h")

	w.do("ZADD", "retry", 5, "junk\xff\x1b[31m")
	w.do("RPUSH", "ready", "2:nobody")
	w.run("doctor", "orders", "--repair", "--yes").shows("malformed tag (2)", "drop from ready: 2:nobody",
		"repaired 2 things",
		"the queue is sound now")
	w.sound("orders")
}

// tellDoctorLane: a message that has waited for hours for others of its lane is a finding, with the name of the lane.
func tellDoctorLane(w *world) {
	started, release := make(chan struct{}), make(chan struct{})
	w.consume("orders", func(context.Context, *delayqueue.Message) error {
		close(started)
		<-release
		return nil
	})
	w.Cleanup(func() { close(release) })
	w.send("orders", "a", delayqueue.WithLane("customer-42"))
	<-started
	id := w.send("orders", "b", delayqueue.WithLane("customer-42"))
	w.heardOf("orders")
	w.contains(w.must("stats", "orders"), "fine")
	w.do("ZADD", "waiting", time.Now().Add(-2*time.Hour).UnixMicro(), id)
	w.run("doctor", "orders").shows("waits long for its lane (1)",
		"messages of lane customer-42 wait for others of it since", "delayqueue lanes skip lets")
	w.contains(w.must("stats", "orders", "--json"), `"level":"warning","code":"lane"`)

	soon := []string{"orders", "--lane-after", "1ms", "--hung-after", "1ms"}
	w.until("its consumer says since when the handler runs", func() bool {
		return strings.Contains(w.run(append([]string{"doctor"}, soon...)...).out, "handlers hang (1)")
	})
	w.run(append([]string{"doctor"}, soon...)...).shows("handlers that run for more than 0s: 1, of 1 workers",
		"lane customer-42 stands still, messages wait since", "the one in front is handled since", "(behind it: 1)")
	w.contains(w.must(append([]string{"stats", "--json"}, soon...)...), `"level":"critical","code":"handlers hang"`)
	w.refused(exitUsage, "--hung-after", "stats", "orders", "--hung-after", "soon")
}

// throttledForLong: handlers of a queue that has consumers say so again and again. A fetch heeds throttled only if
// limits is there.
func (w *world) throttledForLong() {
	key := func(name string) string { return "{" + w.prefix + ":slow}:" + name }
	w.handled("slow")
	for _, args := range [][]any{
		{"HSET", key("state"), "limits", "", "throttled", fmt.Sprintf("%d %d", time.Now().Add(-time.Minute).UnixMicro(),
			time.Now().Add(10*time.Minute).UnixMicro())},
		{"ZADD", key("pending"), time.Now().Add(-2 * time.Hour).UnixMicro(), w.send("slow", "a", inAnHour)},
	} {
		ok(w, w.cli.Do(w.Context(), args...).Err())
	}
	w.contains(w.run("doctor", "slow").out, "throttled for long (1)", "and 2h", "delayqueue limits lift ends it")
}

// A server that may evict is said to.
func TestDoctorEviction(t *testing.T) {
	w, _ := ownServer(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	w.send("orders", "a", inAnHour)
	w.contains(w.run("doctor", "orders").out, "server in trouble (1)", "Eviction: allkeys-lru", "noeviction")
	ok(t, w.cli.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	w.contains(w.must("doctor", "orders"), "its data is sound")
}

// The checks of the repair are made where it writes: consumers go on, nothing is handled twice, and what moves is
// sound.
func tellDoctorBusy(w *world) {
	n := testkit.Size(2000, 600)
	w.sendEach("orders", n, func(i int) delayqueue.Outgoing {
		return delayqueue.Outgoing{Options: []delayqueue.MsgOption{delayqueue.WithLane(fmt.Sprint("lane ", i%40), 1+i%40%3)}}
	})
	before := w.read()
	for _, e := range before.Pending {
		w.do("ZREM", "pending", e.Tag)
	}
	for _, m := range before.Lanes[:len(before.Lanes)/2] {
		w.do("ZREM", "lanes", m.Member)
	}
	handled := w.handled("orders")
	var runs sync.WaitGroup
	for range 3 { // at once, each by what it saw
		runs.Go(func() { w.exits(0, "doctor", "orders", "--repair", "--yes") })
	}
	runs.Wait()
	once(w, handled, n, func(m *delayqueue.Message) string { return m.ID })
	w.until("all are settled", func() bool { return len(w.read().Messages) == 0 })
	w.sound("orders")
}

func TestEveryFindingIsExplained(t *testing.T) {
	source, err := os.ReadFile("../../internal/check/finding.go")
	ok(t, err)
	own := []check.Kind{noConsumer, deadLease, unwell, throttled, longLane, hanging, schedulesNotRun, scheduleStuck}
	for _, k := range own {
		if a := advices[k]; a.means == "" || a.do == "" || a.repair {
			t.Errorf("%q: %+v", k, a)
		}
	}
	kinds := regexp.MustCompile(`Kind += +"(.+)"`).FindAllSubmatch(source, -1)
	for _, kind := range kinds {
		k := check.Kind(kind[1])
		if a := advices[k]; k != check.Leftover &&
			(a.means == "" || a.do == "" || a.repair != strings.Contains(a.do, byRepair)) {
			t.Errorf("%q: %+v", k, a)
		}
	}
	if a := advices[loss]; a.means == "" || a.do == "" || !a.repair {
		t.Errorf("%q: %+v", loss, a)
	}
	if len(kinds)-1+len(own)+1 != len(advices) { // without Leftover, and with loss
		t.Errorf("%d kinds, %d advices", len(kinds), len(advices))
	}
}
