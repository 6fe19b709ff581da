package delayqueue

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// consumers collects those that are alive.
func (r *rig) consumers() (alive []Consumer) {
	r.t.Helper()
	for c, err := range r.store.consumers(context.Background()) {
		if err != nil {
			r.t.Fatal(err)
		}
		alive = append(alive, c)
	}
	return alive
}

// TestConsumersOfRubbish: an entry from the future, as after a step of the clock, or with numbers that nobody writes
// is not alive, keeps no queue from being deleted, goes in time, and can be written as JSON if it is alive after all.
func TestConsumersOfRubbish(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		dead := map[string]string{
			"future": fmt.Sprintf("%d 10000000 {}", r.now+time.Hour.Microseconds()), "end of time": "9223372036854775807 1 {}",
			"before time": "-9223372036854775808 10000000 {}", "no lease": fmt.Sprintf("%d -1 {}", r.now-4e6), "infinite": "inf inf {}",
			"rubbish": "x", "empty": "", "no JSON": fmt.Sprintf("%d 1 {", r.now-4e6),
		}
		for name, entry := range dead {
			r.do("HSET", r.keys.consumers, name, entry)
		}
		r.equal("alive", len(r.consumers()), 0)
		c := newCaller()
		for round := 0; r.cli.HLen(context.Background(), r.keys.consumers).Val() > 1; round++ {
			if round > 1000 {
				r.t.Fatalf("they stay: %v", r.cli.HGetAll(context.Background(), r.keys.consumers).Val())
			}
			r.at(time.Duration(round) * 5 * time.Second)
			c.next()
			r.ask(c, fetchRequest{presence: "{}"})
		}
		r.do("HSET", r.keys.consumers, "odd times",
			fmt.Sprintf(`%d 10000000 {"up":-9223372036854775808,"handling":[{"id":"a","us":9223372036854775807},{"id":"b","us":-5}]}`, r.now))
		r.equal("alive", len(r.consumers()), 2)
		if text, err := json.Marshal(r.consumers()); err != nil {
			r.t.Errorf("%v: %s", err, text)
		}
		r.do("HDEL", r.keys.consumers, "odd times", c.id)
		for name, entry := range dead {
			r.do("HSET", r.keys.consumers, name, entry)
		}
		if alive, _, err := r.store.drop(context.Background(), false); alive != 0 || err != nil {
			r.t.Errorf("drop: %d are alive, %v", alive, err)
		}
		if left := r.contents(); left != "" {
			r.t.Errorf("left: %s", left)
		}
	})
}

// TestConsumersExpire: the last one that was killed is forgotten in a month.
func TestConsumersExpire(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		c := newCaller()
		c.next()
		r.ask(c, fetchRequest{presence: "{}"})
		if ttl := r.cli.TTL(context.Background(), r.keys.consumers).Val(); ttl < 30*24*time.Hour || ttl > 31*24*time.Hour {
			r.t.Errorf("consumers expire in %v", ttl)
		}
	})
}

// TestDropOfAnothersKeys: somebody else's key in place of any of a queue's is deleted with the queue; the journal stays.
func TestDropOfAnothersKeys(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for _, key := range r.keys.all {
			r.do("SET", key, "somebody else's")
		}
		if alive, _, err := r.store.drop(context.Background(), false); alive != 0 || err != nil {
			r.t.Errorf("drop: %d are alive, %v", alive, err)
		}
		if left := r.contents(); strings.TrimSpace(left) != "journal string somebody else's" {
			r.t.Errorf("left: %s", left)
		}
		r.do("DEL", r.keys.journal)
	})
}

// TestManyConsumers: 300 with 100 messages each are read a page at a time, each page by one call for some 25; the
// one that handles a message is found, and a look at a message that waits reads none.
func TestManyConsumers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	onServer := server.Client(t)
	f := fixtureOn(t, onServer)
	m := NewMonitor(f.name, onServer)
	waits := f.send(f.queue(nil), "waits", inAnHour)
	s := f.calls()
	r := &rig{store: s, t: t, name: f.name, with: fetchSettings{lease: time.Hour, maxLosses: 3}}
	held := f.send(f.queue(nil), "held")
	if got, err := s.fetch(ctxB, &caller{id: "c", n: 1}, fetchRequest{want: 1, settings: &r.with}); err != nil || len(got.tags) != 1 {
		t.Fatalf("%v, %v", got.tags, err)
	}
	now := time.Now().UnixMicro()
	for i := range 300 {
		said := presence{Concurrency: 100}
		for j := range maxPresenceMessages {
			said.Handling = append(said.Handling, handledMessage{ID: fmt.Sprintf("%036d", j)})
		}
		if i == 123 {
			said.Handling[50].ID = held.ID
		}
		text, err := json.Marshal(said)
		f.must(err)
		r.do("HSET", s.keys.consumers, fmt.Sprint(i), fmt.Sprintf("%d 3600000000 %s", now, text))
	}
	var alive []Consumer
	spent := commands(t, redisClient(t, server.Addr()), func() {
		var err error
		alive, err = m.Consumers(ctxB)
		f.must(err)
	})
	if calls := spent["hscan"]; len(alive) != 300 || calls < 6 || calls > 60 {
		t.Errorf("%d consumers in %d pages: %v", len(alive), calls, spent)
	}
	if status, err := m.Get(ctxB, held.ID); err != nil || status.State != StateUnack || status.Consumer != "123" {
		t.Errorf("%+v, %v", status, err)
	}
	spent = commands(t, redisClient(t, server.Addr()), func() {
		if status, err := m.Get(ctxB, waits.ID); err != nil || status.State != StatePending {
			t.Errorf("%+v, %v", status, err)
		}
		if err := m.DeleteQueue(ctxB, false); err == nil || !strings.Contains(err.Error(), ErrConsumersAlive.Error()) {
			t.Errorf("DeleteQueue: %v", err)
		}
	})
	if spent["hscan"] > 30 || spent["unlink"] > 0 { // until it has read 1 MB
		t.Errorf("DeleteQueue: %v", spent)
	}
}
