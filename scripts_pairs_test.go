package delayqueue

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A fault is what is done to a queue before a call: a key of another program stands in the place of one, or a field of state is
// gone, by which scripts know what else there may be.
type fault struct{ key, field string }

func (f fault) String() string { return strings.TrimSuffix(f.key+" without "+f.field, " without ") }

// faultsOf are those that may concern a script.
func faultsOf(sc *script) (all []fault) {
	for _, i := range sc.keys {
		all = append(all, fault{key: structures[i]})
		if structures[i] == "state" {
			for _, field := range []string{"parts", "held", "done", "limited", "changed"} {
				all = append(all, fault{"state", field})
			}
		}
	}
	return all
}

// A snapshot is all that Redis holds of a queue, by structure.
type snapshot map[string]held

// held is what a key holds: as DUMP says it, and, of a hash, which has no order, its fields.
type held struct {
	dump   string
	fields map[string]string
}

func (h held) same(other held) bool {
	if h.fields != nil {
		return maps.Equal(h.fields, other.fields)
	}
	return h.dump == other.dump
}

func (r *rig) snapshot() snapshot {
	r.t.Helper()
	pipe := r.cli.Pipeline()
	dumps, hashes := make([]*redis.StringCmd, len(structures)), make([]*redis.MapStringStringCmd, len(structures))
	for i := range structures {
		key := r.keys.all[i].(string)
		dumps[i], hashes[i] = pipe.Dump(ctxB, key), pipe.HGetAll(ctxB, key)
	}
	_, _ = pipe.Exec(ctxB) // a key is not there, or no hash
	s := snapshot{}
	for i, name := range structures {
		if err := dumps[i].Err(); err == nil {
			s[name] = held{dumps[i].Val(), hashes[i].Val()}
		} else if !errors.Is(err, redis.Nil) {
			r.t.Fatal(err)
		}
	}
	return s
}

// restore makes the queue what it was, but for some faults.
func (r *rig) restore(s snapshot, faults ...fault) {
	r.t.Helper()
	pipe := r.cli.Pipeline()
	for i, name := range structures {
		key := r.keys.all[i].(string)
		if pipe.Del(ctxB, key); s[name].dump != "" {
			pipe.Restore(ctxB, key, 0, s[name].dump)
		}
	}
	for _, f := range faults {
		if key := r.keys.all[slices.Index(structures[:], f.key)].(string); f.field != "" {
			pipe.HDel(ctxB, key, f.field)
		} else {
			pipe.Set(ctxB, key, "somebody else's", 0)
		}
	}
	if _, err := pipe.Exec(ctxB); err != nil && !strings.Contains(err.Error(), "WRONGTYPE") { // state itself, and a field of it
		r.t.Fatal(err)
	}
}

// TestScriptWritesAllOrNothing: whatever key, or two of them, belong to another program, a script that fails has written nothing,
// and one that does not has done to all other keys what it does where nothing is wrong.
func TestScriptWritesAllOrNothing(t *testing.T) {
	t.Parallel()
	calls := map[string]wrongTypeCase{}
	for _, some := range []map[string]wrongTypeCase{producersCalls, consumersCalls, monitorsCalls} {
		maps.Copy(calls, some)
	}
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			call := c.build(r)
			sane := r.snapshot()
			if err := call(); err != nil {
				t.Fatal(err)
			}
			done, faults := r.snapshot(), faultsOf(c.script)
			for i, one := range faults {
				for _, other := range faults[i:] {
					r.writesAllOrNothing(call, sane, done, one, other)
				}
			}
			r.restore(sane)
		})
	}
}

func (r *rig) writesAllOrNothing(call func() error, sane, done snapshot, faults ...fault) {
	r.t.Helper()
	r.restore(sane, faults...)
	before, err := r.snapshot(), call()
	after := r.snapshot()
	if err != nil {
		for _, name := range structures {
			if !after[name].same(before[name]) {
				r.t.Errorf("%v: it fails (%v), and %s has changed", faults, err, name)
			}
		}
		return
	}
	if slices.ContainsFunc(faults, func(f fault) bool { return f.field != "" }) {
		return // it may do another thing
	}
	for _, name := range structures {
		if name == "state" && slices.Contains(faults, fault{key: "history"}) {
			continue // it keeps what would move there
		}
		if !slices.Contains(faults, fault{key: name}) && !after[name].same(done[name]) {
			r.t.Errorf("%v: it passes, and %s is not what it should be", faults, name)
		}
	}
}
