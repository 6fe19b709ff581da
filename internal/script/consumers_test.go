package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestConsumersOfRubbish: entries from the future, as after a step of the clock, or with rubbish numbers are returned as they
// are. They go in time, and do not keep a queue from being deleted.
func TestConsumersOfRubbish(t *testing.T) {
	t.Parallel()
	onReal(t, func(r *rig) {
		dead := map[string]string{
			"future": fmt.Sprintf("%d 10000000 {}", r.now+time.Hour.Microseconds()), "end of time": "9223372036854775807 1 {}",
			"before time": "-9223372036854775808 10000000 {}", "no lease": fmt.Sprintf("%d -1 {}", r.now-4e6), "infinite": "inf inf {}",
			"rubbish": "x", "empty": "", "no JSON": fmt.Sprintf("%d 1 {", r.now-4e6),
		}
		for name, entry := range dead {
			r.do("HSET", r.Keys.consumers, name, entry)
		}
		read := map[string]string{}
		for e, err := range r.Store.Consumers(context.Background()) {
			r.equal("error", err, nil)
			r.equal("now", e.Now, r.now)
			read[e.ID] = e.Text
		}
		r.equal("entries", read, dead)
		c := NewCaller()
		for round := 0; r.Cli.HLen(context.Background(), r.Keys.consumers).Val() > 1; round++ {
			if round > 1000 {
				r.t.Fatalf("they stay: %v", r.Cli.HGetAll(context.Background(), r.Keys.consumers).Val())
			}
			r.at(time.Duration(round) * 5 * time.Second)
			c.Next()
			r.ask(c, FetchRequest{Presence: "{}"})
		}
		r.do("HDEL", r.Keys.consumers, c.ID)
		for name, entry := range dead {
			r.do("HSET", r.Keys.consumers, name, entry)
		}
		if alive, _, err := r.Store.Drop(context.Background(), false); alive != 0 || err != nil {
			r.t.Errorf("drop: %d are alive, %v", alive, err)
		}
		if left := r.contents(); left != "" {
			r.t.Errorf("left: %s", left)
		}
	})
}

// TestConsumersExpire: without any consumer, the last entry is forgotten in a month.
func TestConsumersExpire(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		c := newCall()
		r.ask(c, FetchRequest{Presence: "{}"})
		if ttl := r.Cli.TTL(context.Background(), r.Keys.consumers).Val(); ttl < 30*24*time.Hour || ttl > 31*24*time.Hour {
			r.t.Errorf("consumers expire in %v", ttl)
		}
	})
}

// TestDropOfAnothersKeys: another program's key in the place of any structure is deleted with the queue, but for the journal.
func TestDropOfAnothersKeys(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for _, key := range r.Keys.all {
			r.do("SET", key, "somebody else's")
		}
		if alive, _, err := r.Store.Drop(context.Background(), false); alive != 0 || err != nil {
			r.t.Errorf("drop: %d are alive, %v", alive, err)
		}
		if left := r.contents(); strings.TrimSpace(left) != "journal string somebody else's" {
			r.t.Errorf("left: %s", left)
		}
		r.do("DEL", r.Keys.journal)
	})
}

// TestScriptUnknownLayout: in a layout that this version does not know, steer and drop refuse calls for many messages. A repeat
// of a call that was carried out is answered.
func TestScriptUnknownLayout(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.put(msg("a", time.Hour), msg("b", time.Hour))
		steer := func(c *Caller, name, only string) error {
			_, err := r.Store.Steer(context.Background(), c, SteerRequest{What: "delete", Only: only, Targets: []Spot{{Tag: queuetest.IDOf(name)}}})
			return err
		}
		c := newCall()
		if err := steer(c, "a", "pending"); err != nil {
			r.t.Fatal(err)
		}
		r.do("HSET", r.Keys.State, "layout", "2")
		before := r.contents()
		if err := steer(c, "a", "pending"); err != nil {
			r.t.Errorf("a repeat of what was done: %v", err)
		}
		c.Next()
		for _, only := range []string{"pending", "ready", "unack", "retry", "garbage"} {
			if err := steer(c, "b", only); !errors.Is(err, ErrUnknownLayout) {
				r.t.Errorf("in %s: %v", only, err)
			}
		}
		for _, force := range []bool{false, true} {
			if _, _, err := r.Store.Drop(context.Background(), force); !errors.Is(err, ErrUnknownLayout) {
				r.t.Errorf("drop: %v", err)
			}
		}
		r.equal("contents", r.contents(), before)
		if err := steer(c, "b", ""); err != nil {
			r.t.Errorf("one message: %v", err)
		}
		r.do("HDEL", r.Keys.State, "layout")
	})
}
