package delayqueue

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// holders makes n messages of so many bytes that have the keys k0, k1, …
func (r *rig) holders(n, size int) {
	r.t.Helper()
	for i := range n {
		r.put(msg(fmt.Sprint("h", i), time.Hour, keyed(fmt.Sprint("k", i)), sized(size)))
	}
}

// groups makes n groups of so many parts that have the keys k0, k1, …
func (r *rig) fullGroups(n, parts int) {
	r.t.Helper()
	for i := range n {
		for first := 0; first < parts; first += maxPut {
			var all []*sendMessage
			for j := range min(maxPut, parts-first) {
				all = append(all, part(fmt.Sprintf("g%d.%d", i, first+j), time.Hour, 0, keyed(fmt.Sprint("k", i))))
			}
			r.send(newCaller(), all...)
		}
	}
}

// ontoKeys makes n messages of one byte for the keys k0, k1, …
func ontoKeys(on Conflict, n int) (ms []*sendMessage) {
	for i := range n {
		m := msg(fmt.Sprint("m", i), 2*time.Hour, keyed(fmt.Sprint("k", i)), func(e *envelope) { e.payload = "x" })
		m.put = &putOptions{on: on, timed: true}
		ms = append(ms, m)
	}
	return ms
}

// TestScriptPutIsBoundedByWhatItReads: a call ends before it has read more than half a megabyte of those that have the keys, or
// deleted the parts of more groups than that, and says of the others nothing; what is kept it does not read.
func TestScriptPutIsBoundedByWhatItReads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		build func(r *rig)
		on    Conflict
		want  int
	}{
		"short ones":          {func(r *rig) { r.holders(maxPut, 10) }, Reschedule, maxPut},
		"of 100 KB":           {func(r *rig) { r.holders(7, 100<<10) }, Reschedule, 5},
		"of 100 KB, replaced": {func(r *rig) { r.holders(7, 100<<10) }, Replace, 5},
		"of 1 MB":             {func(r *rig) { r.holders(3, 1<<20) }, Reschedule, 1},
		"of 1 MB, kept":       {func(r *rig) { r.holders(3, 1<<20) }, Keep, 3},
		"a short one before":  {func(r *rig) { r.holders(1, 10); r.put(msg("h1", time.Hour, keyed("k1"), sized(1<<20))) }, Reschedule, 1},
		"full groups":         {func(r *rig) { r.fullGroups(4, 999) }, Replace, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(r *rig) {
				c.build(r)
				n := int(r.cli.HLen(ctxB, r.keys.key).Val())
				by, batch := newCaller(), ontoKeys(c.on, n)
				for len(batch) > 0 {
					out := r.send(by, batch...)
					r.equal("answers", len(out.answers), min(c.want, len(batch)))
					before := r.inWords(out)
					r.equal("the same again", r.inWords(r.sendAgain(by, batch...)), before)
					r.equal("kept", strings.Count(before, "~"), len(out.answers))
					batch = batch[len(out.answers):]
				}
				r.read()
			})
		})
	}
}

// TestSendsOntoLongMessages: a batch that takes several calls is answered in full, in order, and the last send of a key wins.
func TestSendsOntoLongMessages(t *testing.T) {
	f := newFixture(t)
	q := f.queue(nil)
	long := strings.Repeat("x", 200<<10)
	var first, batch []Outgoing
	for i := range 6 {
		key := fmt.Sprint("k", i)
		first = append(first, Outgoing{Payload: long, Options: []MsgOption{WithKey(key), WithDelay(time.Hour)}})
		for j := range 3 {
			batch = append(batch, Outgoing{Payload: fmt.Sprint(j, long), Options: []MsgOption{WithKey(key, Replace), WithDelay(time.Duration(j+1) * time.Hour)}})
		}
		batch = append(batch, Outgoing{Payload: "y", Options: []MsgOption{WithKey(key, Reschedule), WithDelay(9 * time.Hour)}})
	}
	if _, err := q.SendBatch(ctxB, first); err != nil {
		t.Fatal(err)
	}
	spent := commands(t, f.client(), func() {
		results, err := q.SendBatch(ctxB, batch)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if !r.Info.Existed {
				t.Errorf("%d: %+v", i, r.Info)
			}
		}
	})
	if n := spent["evalsha"] + spent["eval"]; n < 12 {
		t.Errorf("%d calls for 24 messages, each of which has another one of 200 KB read: %v", n, spent)
	}
	m := NewMonitor(f.name, f.cli)
	for i := range 6 {
		got, err := m.GetKey(ctxB, fmt.Sprint("k", i))
		if err != nil || got.Payload[:1] != "2" || time.Until(got.At) < 8*time.Hour {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
		if _, err := m.steerer.InterceptKey(ctxB, fmt.Sprint("k", i)); err != nil {
			t.Error(err)
		}
	}
}
