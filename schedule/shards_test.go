package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestShards: in a queue with several shards each entry is sent once for each instant, and a change takes back what
// was sent ahead.
func TestShards(t *testing.T) {
	f := newFixture(t)
	_, err := script.NewStore(f.cli, "dq", f.name).Join(f.ctx(), 4, 0) // first, so that all shards have names
	f.must(err)
	f.pub = delayqueue.NewPublisher(f.name, f.cli, delayqueue.WithShards(4))
	f.s = f.replica()
	t.Cleanup(func() { check.AssertShards(t, f.cli, "dq", f.name, 0) })
	got := f.consume(nil)
	entries := []Entry{{Name: "e", Payload: "before"}, {Name: "a/b", Overlap: Skip}, {Name: "a{b", Payload: "x"},
		{Name: "{customer-42}report", Options: []delayqueue.MsgOption{delayqueue.WithLane("customer-42")}}}
	for i := range entries {
		entries[i].Every = time.Second
		f.must(f.s.Set(f.ctx(), entries[i]))
	}
	f.run(f.s, f.replica())
	for _, e := range entries {
		f.until(e.Name+" is sent", func() bool {
			n, _ := got.of(e.Name)
			return len(n) >= 3
		})
	}
	entries[0].Payload = "after"
	f.must(f.s.Set(f.ctx(), entries[0]))
	changed := f.now()
	f.until("e is sent as it is now", func() bool {
		n, _ := got.of("e")
		for at := range n {
			if at > changed+5 {
				return true
			}
		}
		return false
	})
	for _, e := range entries {
		if n, most := got.of(e.Name); most != 1 {
			t.Errorf("%s: messages for each instant: %v", e.Name, n)
		}
	}
	all, err := List(f.ctx(), f.mon.Monitor)
	f.must(err)
	for _, s := range all {
		if s.Trouble != nil {
			t.Errorf("%s: %v", s.Name, s.Trouble)
		}
	}
	// A lane of another customer lies elsewhere, which the status says.
	f.must(f.s.Set(f.ctx(), Entry{Name: "lost", Every: time.Second, Options: []delayqueue.MsgOption{delayqueue.WithLane("customer-42")}}))
	f.until("the entry is refused", func() bool {
		all, err := List(f.ctx(), f.mon.Monitor)
		f.must(err)
		for _, s := range all {
			if s.Name == "lost" && s.Trouble != nil {
				return true
			}
		}
		return false
	})
}

// TestKeysOfShards: the key of a message ahead lies with the sequence of its entry.
func TestKeysOfShards(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, name := range []string{"e", "a/b", "a{b", "{customer}x", "x{customer}", "schedule/e}"} {
		key := keyIn(true, name, 7, 1000)
		if lies := script.HashTag(key) == script.HashTag(sequenceOf(name)); lies != (name != "schedule/e}") { // which is refused
			t.Errorf("%s does not lie with %s", key, sequenceOf(name))
		}
		if seen[key] {
			t.Errorf("%s is of two entries", key)
		}
		seen[key] = true
	}
	if keyIn(false, "e", 7, 1000) != keyOf("e", 7, 1000) {
		t.Error(fmt.Sprint("a queue with one shard has another key: ", keyIn(false, "e", 7, 1000)))
	}
}
