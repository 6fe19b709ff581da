package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestScriptLook: every state, found by id, with its instant.
func TestScriptLook(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		everywhere(r)
		at := func(d time.Duration) time.Time { return time.UnixMicro(rigBase).Add(d) }
		r.put(msg("far", time.Hour))
		for name, want := range map[string]struct {
			state State
			at    time.Time
		}{
			"far": {StatePending, at(time.Hour + r.since(r.now))}, "due": {StateReady, time.Time{}}, "ready": {StateReady, time.Time{}},
			"retry": {StateReady, time.Time{}}, "lost": {StateUnack, at(10*time.Second + time.Microsecond)}, "dead": {StateGarbage, at(0)},
		} {
			got, err := r.store.look(context.Background(), "id", idOf(name))
			if err != nil || got == nil {
				r.t.Fatalf("%s: %v, %v", name, got, err)
			}
			if got.State != want.state || !got.At.Equal(want.at) || got.Payload != name {
				r.t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
	})
}

// TestScriptList: forwards and backwards, in pages of one size or another, whether the last one of a page is
// still there or not.
func TestScriptList(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		var all []string
		for i := range 9 { // three at each instant
			name := fmt.Sprint("m", i)
			all = append(all, name)
			r.put(msg(name, time.Duration(1+i/3)*time.Second))
		}
		p := place{in: StatePending, state: StatePending, from: math.MinInt64, to: math.MaxInt64, part: "later"}
		walk := func(p place, limit int, back, delete bool) (got []string) {
			r.t.Helper()
			p.back = back
			for after, more := (spot{}), true; more; {
				page, err := r.store.list(context.Background(), listRequest{p, limit, after})
				if err != nil {
					r.t.Fatal(err)
				}
				more = page.more()
				for _, e := range page.entries {
					got, after = append(got, e.msg.Payload), e.spot
				}
				if delete {
					c := newCaller()
					c.next()
					if _, err := r.store.steer(context.Background(), c,
						steerRequest{what: "delete", only: "pending", targets: []spot{after}}); err != nil {
						r.t.Fatal(err)
					}
				}
			}
			return got
		}
		reversed := slices.Clone(all)
		slices.Reverse(reversed)
		for limit := 1; limit < 11; limit++ {
			r.equal(fmt.Sprint("pages of ", limit), strings.Join(walk(p, limit, false, false), " "), strings.Join(all, " "))
			r.equal(fmt.Sprint("backwards, pages of ", limit), strings.Join(walk(p, limit, true, false), " "), strings.Join(reversed, " "))
		}
		r.at(2 * time.Second)
		r.equal("later", strings.Join(walk(p, 2, false, false), " "), "m6 m7 m8")
		p.part = "due"
		r.equal("due", strings.Join(walk(p, 2, false, false), " "), "m0 m1 m2 m3 m4 m5")
		p.part, p.from, p.to = "", rigBase+2_000_000, rigBase+2_000_001
		r.equal("from and to", strings.Join(walk(p, 2, false, false), " "), "m3 m4 m5")
		p.from, p.to = math.MinInt64, math.MaxInt64
		r.equal("while they are deleted", strings.Join(walk(p, 2, false, true), " "), strings.Join(all, " "))
		r.equal("what is left, each page's last one deleted", strings.Join(walk(p, 9, true, false), " "), "m6 m4 m2 m0")
	})
}

// TestScriptReadLimit: of what is larger than is wanted no more is read than how large it is; what is not, is read.
func TestScriptReadLimit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for i, name := range []string{"small", strings.Repeat("large", 400)} {
			m := msg(name, time.Duration(1+i)*time.Second)
			r.put(m)
		}
		large := idOf(strings.Repeat("large", 400))
		for most, read := range map[int]bool{0: true, 1000: false, 1 << 20: true, -5: true} {
			got, err := r.store.lookWithin(ctxB, "id", large, most)
			if err != nil || got == nil || got.State != StatePending || got.ID != large || errors.Is(got.Broken, ErrNotRead) == read ||
				(got.Payload == "") == read {
				r.t.Errorf("within %d: %+v, %v", most, got, err)
			}
			p := place{in: StatePending, state: StatePending, from: math.MinInt64, to: math.MaxInt64, most: most}
			page, err := r.store.list(ctxB, listRequest{p, 10, spot{}})
			if err != nil || len(page.entries) != 2 || page.entries[0].msg.Payload != "small" ||
				errors.Is(page.entries[1].msg.Broken, ErrNotRead) == read || page.entries[1].msg.ID != large {
				r.t.Errorf("a list within %d: %+v, %v", most, page, err)
			}
		}
		// What another program wrote is no such answer, nor more than text.
		for _, text := range []string{"\x00large 5", "\x00large x", "\x00large " + strings.Repeat("9", 500)} {
			r.do("HSET", r.keys.msg, large, text)
			for _, most := range []int{0, 400, 1000} {
				got, err := r.store.lookWithin(ctxB, "id", large, most)
				if err != nil || got == nil || got.Broken == nil || most == 0 && errors.Is(got.Broken, ErrNotRead) {
					r.t.Errorf("%.20q within %d: %+v, %v", text, most, got, err)
				}
			}
		}
		r.do("HDEL", r.keys.msg, large)
		r.do("ZREM", r.keys.pending, large)
		r.do("HDEL", r.keys.msg, large)
	})
}

// TestReadLimit: a key finds what is large, and a call for many does it too.
func TestReadLimit(t *testing.T) { onSharedServer(t, readsWithin) }

func readsWithin(f *fixture, m *Monitor) {
	m.WithReadLimit(10_000)
	large := f.send(f.queue(nil), strings.Repeat("x", 20_000), inAnHour, WithKey("k")).ID
	for what, get := range map[string]func() (*MessageStatus, error){
		"id": func() (*MessageStatus, error) { return m.Get(ctxB, large) }, "key": func() (*MessageStatus, error) { return m.GetKey(ctxB, "k") },
	} {
		if got, err := get(); err != nil || got.ID != large || got.Payload != "" || !errors.Is(got.Broken, ErrNotRead) {
			f.t.Errorf("by %s: %+v, %v", what, got, err)
		}
	}
	if page, err := m.List(ctxB, StatePending, Filter{}, ""); err != nil || len(page.Messages) != 1 ||
		!errors.Is(page.Messages[0].Broken, ErrNotRead) {
		f.t.Errorf("%+v, %v", page, err)
	}
	got, err := m.BulkDelete(ctxB, Bulk{States: []State{StatePending}})
	f.bulked("delete", got, err, 1, 1, nil)
	f.checkEmpty()
}
