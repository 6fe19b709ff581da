package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// sendDue sends n messages that are due.
func sendDue(r *rig, prefix string, n int) {
	var ms []*SendMessage
	for i := range n {
		ms = append(ms, msg(fmt.Sprintf("%s%04d", prefix, i), 0))
	}
	r.put(ms...)
}

// allEnd settles all that a fetch handed out.
func allEnd(f FetchReply, kind OutcomeKind) []Settlement {
	var all []Settlement
	for _, tag := range f.Tags {
		all = append(all, ends(kind, names(tag), 1, 0, ""))
	}
	return all
}

// TestScriptFetchBounds: one call moves at most 500 messages, and says so if more is due.
func TestScriptFetchBounds(t *testing.T) {
	t.Parallel()
	const n = 2000
	t.Run("moves", func(t *testing.T) {
		onReal(t, func(r *rig) {
			sendDue(r, "g", n)
			for range n / MaxBatch {
				r.done(allEnd(r.fetch(NewCaller(), MaxBatch), OutcomeGarbage)...)
			}
			sendDue(r, "r", n)
			for range n / MaxBatch {
				r.done(allEnd(r.fetch(NewCaller(), MaxBatch), OutcomeRetry)...)
			}
			sendDue(r, "q", n)
			for range n / MaxBatch {
				r.done(allEnd(r.fetch(NewCaller(), MaxBatch), OutcomeReady)...)
			}
			sendDue(r, "u", n)
			for range 4 { // out of ready first
				if f := r.fetch(NewCaller(), MaxBatch); len(f.Tags) != MaxBatch {
					r.t.Fatalf("fetched %d", len(f.Tags))
				}
			}
			s := r.read()
			r.equal("before", []int{len(s.Pending), len(s.Ready), len(s.Unack), len(s.Retry), len(s.Garbage)}, []int{n, 0, n, n, n})
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			r.with.GarbageAge = time.Second
			garbage := n
			for call := 0; ; call++ {
				f := r.fetch(NewCaller(), MaxBatch)
				counts, err := r.Store.Counts(queuetest.CtxB)
				if err != nil {
					r.t.Fatal(err)
				}
				aged := garbage - int(counts.Garbage)
				garbage -= aged
				if moved := len(f.Tags) + f.Lost + aged; moved > MaxBatch || len(f.Tags) < 300 || f.Lost > 100 {
					r.t.Fatalf("one call moved %d: %d handed out, %d lost, %d aged", moved, len(f.Tags), f.Lost, aged)
				}
				if f.Next == 0 || f.Next > f.Now {
					r.t.Fatalf("next is %v with more to do", r.since(int64(f.Next)))
				}
				var acks []Settlement
				for _, tag := range f.Tags {
					acks = append(acks, ack(names(tag)))
				}
				slices.SortFunc(acks, func(a, b Settlement) int { return a.Number - b.Number })
				r.done(acks...)
				if f.Lost == 0 && aged == 0 {
					r.equal("calls", call >= n/100, true)
					break
				}
				many := make([]*SendMessage, 0, len(f.Tags))
				for i := range f.Tags {
					many = append(many, msg(fmt.Sprintf("%02d%03d", call, i), 0))
				}
				r.put(many...)
			}
			r.read()
		})
	})
	t.Run("moves, with many on their last chance", func(t *testing.T) {
		onReal(t, func(r *rig) {
			r.with.MaxLosses = 2
			sendDue(r, "l", 150)
			f := r.fetch(NewCaller(), MaxBatch)
			lasts := allEnd(f, OutcomeRetry)
			for i := range lasts {
				lasts[i].Failures, lasts[i].Losses = 0, 1
			}
			r.done(lasts...)
			r.at(time.Second)
			r.equal("handed out, one alone", len(r.fetch(NewCaller(), 1).Tags), 1)
			r.at(2 * time.Second)
			sendDue(r, "p", MaxBatch)
			f = r.fetch(NewCaller(), MaxBatch)
			aside := 0
			for _, e := range r.read().Retry {
				if e.Score > r.now {
					aside++
				}
			}
			r.equal("set some aside", aside > 0, true)
			r.equal("moved", len(f.Tags)+aside, MaxBatch)
			r.read()
		})
	})
	t.Run("more is wanted than one call gives", func(t *testing.T) {
		onReal(t, func(r *rig) {
			sendDue(r, "a", n)
			r.equal("handed out", len(r.fetch(NewCaller(), MaxBatch).Tags), MaxBatch)
		})
	})
}

// TestScriptFetchSizes: the reply of one call has at most 1 MB, or one message.
func TestScriptFetchSizes(t *testing.T) {
	t.Parallel()
	t.Run("size", func(t *testing.T) {
		onReal(t, func(r *rig) {
			big := sized(225 << 10)
			r.hand(msg("q1", 0, big), msg("q2", 0, big), msg("r1", 0, big), msg("r2", 0, big))
			r.done(ends(OutcomeReady, "q1", 0, 0, ""), ends(OutcomeReady, "q2", 0, 0, ""), ends(OutcomeRetry, "r1", 0, 0, ""),
				ends(OutcomeRetry, "r2", 0, 0, ""))
			for i := range 6 {
				r.put(msg("p"+strconv.Itoa(i), 0, big))
			}
			r.at(time.Second)
			var all []string
			for {
				f := r.fetch(NewCaller(), 20)
				size := 0
				for _, e := range f.Envelopes {
					size += len(e)
				}
				if size > 1<<20 || len(f.Tags) == 0 {
					r.t.Fatalf("a reply of %d bytes, %s", size, handed(f))
				}
				all = append(all, strings.Fields(handed(f))...)
				if f.Next == 0 {
					break
				}
				r.equal("next", f.Next <= f.Now, true)
			}
			r.equal("first", all[:2], []string{"2:q1", "2:q2"})
			slices.Sort(all)
			r.equal("handed out", strings.Join(all, " "), "2:q1 2:q2 2:r1 2:r2 p0 p1 p2 p3 p4 p5")
			r.put(msg("huge", 0, sized(5<<19)), msg("small", 0))
			r.equal("handed out", handed(r.fetch(NewCaller(), 20)), "huge")
			c := r.take("small")
			r.equal("the repeat", handed(r.fetchAgain(c, 1)), "small")
			// Of ready too: the rest stays in its order.
			r.done(ends(OutcomeReady, "huge", 0, 0, ""), ends(OutcomeReady, "small", 0, 0, ""), ends(OutcomeReady, "p2", 0, 0, ""))
			r.equal("handed out", handed(r.fetch(NewCaller(), 20)), "2:huge")
			r.equal("handed out", handed(r.fetch(NewCaller(), 20)), "2:small 2:p2")
			r.read()
		})
	})
	t.Run("size, with retries", func(t *testing.T) { // neither starves the other of room
		onReal(t, func(r *rig) {
			for range 4 { // of each in turn, so as not to fetch what is not wanted yet
				name := strconv.Itoa(int(r.now - rigBase))
				r.hand(msg("r"+name, 0, sized(225<<10)))
				r.done(ends(OutcomeRetry, "r"+name, 1, 0, ""))
				r.at(r.since(r.now) + time.Microsecond)
			}
			for i := range 4 {
				r.put(msg("p"+strconv.Itoa(i), 0, sized(225<<10)))
			}
			r.at(2 * time.Second)
			f := r.fetch(NewCaller(), 20)
			if n := len(f.Fails); n == 0 || n == len(f.Tags) {
				r.t.Errorf("handed out %s with 4 of each due", handed(f))
			}
			r.read()
		})
	})
	t.Run("size of the dead", func(t *testing.T) {
		onReal(t, func(r *rig) {
			r.with.MaxLosses = 1
			var ms []*SendMessage
			for i := range 12 {
				ms = append(ms, msg(fmt.Sprintf("d%02d", i), 0, sized(225<<10)))
			}
			for part := range slices.Chunk(ms, 4) {
				r.hand(part...)
			}
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			dead := 0
			for dead < 12 {
				f := r.fetch(NewCaller(), 0)
				if len(f.Dead) == 0 || len(f.Dead) > 5 {
					r.t.Fatalf("%d dead in one reply", len(f.Dead))
				}
				dead += len(f.Dead)
				if len(f.Dead) != f.Lost || (dead < 12) != (f.Next != 0 && f.Next <= f.Now) {
					r.t.Errorf("%d dead, %d lost, next %v", len(f.Dead), f.Lost, r.since(int64(f.Next)))
				}
			}
			r.equal("dead", dead, 12)
			r.read()
		})
	})
}

func TestScriptFetchBudget(t *testing.T) {
	three := func(r *rig) *Caller {
		return r.hand(msg("a", 0, sized(100)), msg("b", 0, sized(300)), msg("c", 0, sized(100)))
	}
	runScripts(t, map[string]scriptCase{
		"what has no room goes back": {func(r *rig) {
			c := three(r)
			f := r.ask(c, FetchRequest{Want: 3, Bytes: 300})
			r.equal("handed out", handed(f), "a c")
			r.equal("next", f.Next, f.Now)
			r.equal("again", handed(r.ask(c, FetchRequest{Want: 3, Bytes: 300})), "a c")
			r.take("2:b")
		}, "unack a@10s c@10s 2:b@10s fail b=2/0/0@0s"},
		"one is handed out alone": {func(r *rig) {
			c := three(r)
			r.equal("handed out", handed(r.ask(c, FetchRequest{Want: 3, Bytes: 1})), "a")
		}, "ready 2:b 2:c unack a@10s fail b=2/0/0@0s c=2/0/0@0s wake 0s"},
		"a first call is bounded as well": {func(r *rig) {
			r.put(msg("a", 0, sized(100)), msg("b", 0, sized(300)), msg("c", 0, sized(100)))
			c := newCall()
			r.equal("handed out", handed(r.ask(c, FetchRequest{Want: 3, Bytes: 300})), "a")
		}, "pending b@0s c@0s unack a@10s wake 0s"},
		"what is held is said": {func(r *rig) {
			r.with.MaxLosses = 1
			c := r.hand(msg("a", 0, keyed("k")), msg("b", 0, sized(300)))
			f := r.ask(c, FetchRequest{Want: 2, Probe: true})
			r.equal("handed out", handed(f), "")
			for i := range f.Described {
				f.Described[i].Tag = names(f.Described[i].Tag)
			}
			r.equal("held", f.Described, []DescribedMessage{{Tag: "a", Size: 23, Key: "k"}, {Tag: "b", Size: 321}})
			r.equal("then", handed(r.ask(c, FetchRequest{Want: 2})), "a b")
			c.Next()
			r.put(msg("c", 0))
			f = r.ask(c, FetchRequest{Want: 2, Probe: true})
			r.equal("of a new call", len(f.Described)+len(f.Tags), 0)
		}, "pending c@0s unack a@10s b@10s key k=a wake 0s"},
		"the dead have no room": {func(r *rig) {
			r.with.MaxLosses = 1
			r.hand(msg("a", 0, sized(300), keyed("k")))
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			c := newCall()
			f := r.ask(c, FetchRequest{Bytes: 100})
			r.equal("dead", []any{len(f.Dead), f.Dead[0].Envelope}, []any{1, ""})
		}, "garbage a@11s fail a=2/0/1@11s!poison"},
	})
}
