package script

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// A fault stands in a queue before a call: a key of another program in the place of a structure, or a field of state
// that is missing and would tell scripts what else there is.
type fault struct{ key, field string }

func (f fault) String() string { return strings.TrimSuffix(f.key+" without "+f.field, " without ") }

// faultsOf lists the faults that may concern a script.
func faultsOf(sc *Script) (all []fault) {
	for _, i := range sc.keys {
		all = append(all, fault{key: structures[i]})
		if structures[i] == "state" {
			for _, field := range []string{"parts", "holds", "done", "limited", "changed"} {
				all = append(all, fault{"state", field})
			}
		}
	}
	return all
}

// A snapshot is all that Redis holds of a queue, by structure.
type snapshot map[string]held

// held is the content of a key: as DUMP returns it, and the fields of a hash, which has no order.
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
	pipe := r.Cli.Pipeline()
	dumps, hashes := make([]*redis.StringCmd, len(structures)), make([]*redis.MapStringStringCmd, len(structures))
	for i := range structures {
		key := r.Keys.all[i].(string)
		dumps[i], hashes[i] = pipe.Dump(queuetest.CtxB, key), pipe.HGetAll(queuetest.CtxB, key)
	}
	_, _ = pipe.Exec(queuetest.CtxB) // a key is not there, or no hash
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

// restore makes the queue what it was, and then makes these faults.
func (r *rig) restore(s snapshot, faults ...fault) {
	r.t.Helper()
	pipe := r.Cli.Pipeline()
	for i, name := range structures {
		key := r.Keys.all[i].(string)
		if pipe.Del(queuetest.CtxB, key); s[name].dump != "" {
			pipe.Restore(queuetest.CtxB, key, 0, s[name].dump)
		}
	}
	for _, f := range faults {
		if key := r.Keys.all[slices.Index(structures[:], f.key)].(string); f.field != "" {
			pipe.HDel(queuetest.CtxB, key, f.field)
		} else {
			pipe.Set(queuetest.CtxB, key, "somebody else's", 0)
		}
	}
	if _, err := pipe.Exec(queuetest.CtxB); err != nil &&
		!strings.Contains(err.Error(), "WRONGTYPE") { // state itself, and a field of it
		r.t.Fatal(err)
	}
}

// TestScriptWritesAllOrNothing: whatever key, or two keys, belong to another program, a script that fails has written
// nothing. A script that passes has done to all other keys what it does without the faults. With the key back, a call
// that failed works.
func TestScriptWritesAllOrNothing(t *testing.T) {
	t.Parallel()
	for name, c := range contractCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, by := newRig(t, false), newCall()
			c.build(r)
			call := func() error { return c.call(r, by) }
			sane := r.snapshot()
			queuetest.Must(t, call())
			done, faults := r.snapshot(), faultsOf(c.script)
			for i, one := range faults {
				if r.writesAllOrNothing(call, sane, done, one) {
					if c.passes != "any" && one.field == "" &&
						!slices.Contains(append(strings.Fields(c.passes), "consumers", "history"), one.key) &&
						!(one.key == "parts" && slices.Contains([]string{"list", "held"}, name)) {
						t.Errorf("%v: it passes", one) // of consumers and history: TestKeysForMonitors
					}
				} else if r.restore(sane); call() != nil {
					t.Errorf("%v: it fails with the key back", one)
				}
				for _, other := range faults[i+1 : testkit.Size(len(faults), min(i+2, len(faults)))] {
					r.writesAllOrNothing(call, sane, done, one, other)
				}
			}
			if r.restore(sane); !strings.Contains(name, "missing") {
				r.read()
			}
		})
	}
}

// writesAllOrNothing reports whether a call passes with these faults.
func (r *rig) writesAllOrNothing(call func() error, sane, done snapshot, faults ...fault) bool {
	r.t.Helper()
	r.restore(sane, faults...)
	before, err := r.snapshot(), call()
	after := r.snapshot()
	fields := slices.ContainsFunc(faults, func(f fault) bool { return f.field != "" })
	if err != nil {
		if !fields && !errors.Is(err, ErrWrongType) {
			r.t.Errorf("%v: %v, want that the type is wrong", faults, err)
		}
		done = before
	} else if fields {
		return true // it may do another thing
	}
	for _, name := range structures {
		if err == nil &&
			(slices.Contains(faults, fault{key: name}) || name == "state" && slices.Contains(faults, fault{key: "history"})) {
			continue // the fault itself; and state keeps what would move to history
		}
		if !after[name].same(done[name]) {
			r.t.Errorf("%v: %s is not what it should be; error %v", faults, name, err)
		}
	}
	return err == nil
}
