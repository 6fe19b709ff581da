package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Faults in which Redis is there and refuses.
var refusals = []scenario{
	{
		name:  "maxmemory reached, noeviction",
		holds: "sends say OOM; consuming goes on; handlers that outlast their lease keep it",
		setUp: oneServer("--maxmemory-policy", "noeviction"),
		load:  func(l *load) { l.Slow, l.Workers, l.Messages = 4*time.Second, 96, 42_000 },
		hit: during(3*time.Second,
			func(t *trial) { t.config("maxmemory", "1mb") }, // less than the empty server has
			func(t *trial) { t.config("maxmemory", "0") }),
		every: 3 * time.Second,
		check: func(t *trial, v *verdict) {
			t.wantRefusals(v, "OOM")
			for _, st := range t.strikes {
				if n := t.startsWithin(st); n < 100 {
					v.problem("%d handlers started while the server was full", n)
				}
			}
		},
	},
	{
		name:  "keys evicted, allkeys-random",
		holds: "not survivable; said once in the log, nothing crashes, new messages work",
		setUp: oneServer("--maxmemory-policy", "allkeys-random"),
		hit: func(t *trial) {
			t.strike(strike{wiped: true}, func() {
				t.config("maxmemory", "1mb")
				t.await("keys are evicted", settleLimit, func() bool {
					info, err := t.admin.Info(t.ctx, "stats").Result()
					return err == nil && !strings.Contains(info, "evicted_keys:0\r")
				})
				t.config("maxmemory", "0")
			})
		},
		every: 4 * time.Second,
		rules: rules{lossy: "Redis deleted the queue", duplicate: "Redis deleted what knew of it", tolerated: []string{""}},
		check: func(t *trial, v *verdict) {
			if v.lost == 0 {
				v.problem("nothing was lost: no key of the queue was evicted")
			}
			if v.unaccounted == 0 && t.logged("has gone back to an earlier state") == 0 { // its totals were evicted, too
				v.problem("the books explain everything, and no consumer has missed anything")
			}
			// Each consumer says each of two things at most once a strike.
			said := t.logged("keys of this queue have vanished") + t.logged("dropped tags without a message")
			if most := 2 * consumers * v.struck; said == 0 || said > most {
				v.problem("the consumers said it %d times, want 1 to %d", said, most)
			}
		},
	},
	{
		name:  "messages deleted by a neighbour",
		holds: "not survivable; the books say how many",
		hit:   func(t *trial) { t.strike(strike{wiped: true}, t.erase) },
		every: 2 * time.Second,
		rules: rules{lossy: "another program deleted them", tolerated: []string{"which is no message"}},
		check: func(t *trial, v *verdict) {
			if v.lost == 0 || v.unaccounted != -int(t.made) {
				v.problem("%d are unaccounted for, want %d", v.unaccounted, -t.made)
			}
		},
	},
	{
		name:  "disk full: stop-writes-on-bgsave-error",
		holds: "a clear error, then recovery",
		setUp: oneServer("--save", "3600 100000000"),
		load:  refusing,
		hit: func(t *trial) {
			dump := filepath.Join(t.serverDir, "dump.rdb")
			t.strike(strike{}, func() {
				_ = os.Remove(dump)
				if err := os.MkdirAll(filepath.Join(dump, "in the way"), 0o700); err != nil {
					t.Fatal(err)
				}
				t.save("err")
				t.wait(time.Second)
				if err := os.RemoveAll(dump); err != nil {
					t.Fatal(err)
				}
				t.save("ok")
			})
		},
		every: 2 * time.Second,
		rules: rules{resume: 2 * time.Second},
		check: func(t *trial, v *verdict) { t.wantRefusals(v, "MISCONF") },
	},
	{
		name:  "read-only: made a replica",
		holds: "patience, then recovery; no send fails",
		load:  refusing,
		hit: during(time.Second,
			func(t *trial) { t.do("REPLICAOF", "127.0.0.1", "1") }, // nobody is there
			func(t *trial) { t.do("REPLICAOF", "NO", "ONE") }),
		every: 2 * time.Second,
		rules: rules{resume: 2 * time.Second},
		check: wantNoRefusals,
	},
	{
		name:  "BUSY: a script of somebody else's hangs",
		holds: "patience, then recovery; no send fails",
		setUp: oneServer("--lua-time-limit", "50"),
		load:  longLease,
		hit: func(t *trial) {
			t.strike(strike{}, func() {
				busy := func(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "BUSY") }
				patient, over := t.server.Client(t).WithTimeout(time.Hour), make(chan error)
				go func() {
					defer close(over)
					for busy(patient.Do(t.ctx, "EVAL", "while true do end", 0).Err()) {
					} // with a script of the queue, on a slow machine
				}()
				t.await("the server is busy", settleLimit, func() bool { return busy(t.admin.Get(t.ctx, "none").Err()) })
				t.wait(time.Second)
				t.await("the script is killed", settleLimit, func() bool { // perhaps after one of the queue
					_ = t.admin.ScriptKill(t.ctx).Err()
					select {
					case <-over:
						return true
					default:
						return false
					}
				})
			})
		},
		every: 2 * time.Second,
		rules: rules{resume: 2 * time.Second},
		check: wantNoRefusals,
	},
}

// refusing is the load where some sends are refused.
func refusing(l *load) {
	longLease(l)
	l.Messages = 32_000
}

// do carries out a command that must succeed.
func (t *trial) do(args ...any) {
	if err := t.admin.Do(t.ctx, args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

func (t *trial) config(name, value string) { t.do("CONFIG", "SET", name, value) }

// save has the server save, and waits for how that ends.
func (t *trial) save(want string) {
	t.do("BGSAVE")
	t.await("the save ends: "+want, settleLimit, func() bool {
		info, err := t.admin.InfoMap(t.ctx, "persistence").Result()
		p := info["Persistence"]
		return err == nil && p["rdb_bgsave_in_progress"] == "0" && p["rdb_last_bgsave_status"] == want
	})
}

// wantRefusals wants some sends refused, all of them for one reason.
func (t *trial) wantRefusals(v *verdict, reason string) {
	n := 0
	for _, e := range t.books.all() {
		switch {
		case e.Kind != refused:
		case strings.Contains(e.Word, reason):
			n++
		default:
			v.problem("%s was refused: %s", e.Payload, e.Word)
		}
	}
	if n == 0 {
		v.problem("no send was refused, want %s", reason)
	}
}

func wantNoRefusals(t *trial, v *verdict) {
	for _, e := range t.books.all() {
		if e.Kind == refused {
			v.problem("the send of %s failed: %s", e.Payload, e.Word)
		}
	}
}

// startsWithin counts the handlers that started during a strike.
func (t *trial) startsWithin(st strike) (n int) {
	for _, e := range t.books.all() {
		if e.Kind == started && e.At > st.from && e.At < st.to {
			n++
		}
	}
	return n
}
