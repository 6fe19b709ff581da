package script

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// newCall is a new caller with its first call begun.
func newCall() *Caller { return after(NewCaller()) }

// after begins a caller's next call.
func after(c *Caller) *Caller {
	c.Next()
	return c
}

// older makes the caller repeat the call before its last one.
func older(c *Caller) *Caller { return &Caller{ID: c.ID, N: c.N - 1} }

// Each of these methods begins a new call. Those with Again repeat the last call.

func (r *rig) send(c *Caller, ms ...*SendMessage) SendReply {
	r.t.Helper()
	c.Next()
	return r.sendAgain(c, ms...)
}

func (r *rig) sendAgain(c *Caller, ms ...*SendMessage) SendReply {
	r.t.Helper()
	out, err := r.Store.Send(queuetest.CtxB, c, SendRequest{Messages: ms})
	if err != nil {
		r.t.Fatalf("send: %v", err)
	}
	return out
}

// put sends messages in batches, by a new caller, and wants all of them to be stored.
func (r *rig) put(ms ...*SendMessage) {
	r.t.Helper()
	for part := range slices.Chunk(ms, MaxBatch) {
		if out := r.send(NewCaller(), part...); len(out.refused) > 0 || out.Now != r.now {
			r.t.Fatalf("send: %+v", out)
		}
	}
}

// refused names the holders of the keys, by the index of the message that was refused.
func refused(out SendReply) string {
	var words []string
	for _, i := range slices.Sorted(maps.Keys(out.refused)) {
		words = append(words, fmt.Sprintf("%d=%s", i, names(out.refused[i])))
	}
	return strings.Join(words, " ")
}

// A taking is what a tick and the fetch after it did.
type taking struct {
	FetchReply
	TickReply TickReply
	Lost      int // as the tick says
	Dead      []DeadMessage
	Overflow  int
	Replaced  int
}

func (r *rig) fetch(c *Caller, want int) taking {
	r.t.Helper()
	c.Next()
	return r.fetchAgain(c, want)
}

func (r *rig) fetchAgain(c *Caller, want int) taking {
	r.t.Helper()
	return r.ask(c, FetchRequest{Want: want})
}

// ask ticks, and then fetches. A consumer fetches first, and then ticks if the fetch says so: askFirst.
func (r *rig) ask(c *Caller, a FetchRequest) taking {
	r.t.Helper()
	did := r.tickOf(c)
	return taking{r.askFirst(c, a), did, did.Lost, did.Dead, did.Overflow, did.Replaced}
}

func (r *rig) tickOf(c *Caller) TickReply {
	r.t.Helper()
	did, err := r.Store.Tick(queuetest.CtxB, c, TickRequest{Again: r.ticked[c.ID], Settings: &r.with})
	queuetest.Must(r.t, err)
	r.ticked[c.ID] = true
	return did
}

func (r *rig) askFirst(c *Caller, a FetchRequest) FetchReply {
	r.t.Helper()
	a.Settings, a.Limits = &r.with, r.limits
	f, err := r.Store.Fetch(queuetest.CtxB, c, a)
	if err != nil {
		r.t.Fatalf("fetch: %v", err)
	}
	r.gave(f)
	if f.Now != message.ServerTime(r.now) {
		r.t.Errorf("fetch at %v says it is %v", r.since(r.now), r.since(int64(f.Now)))
	}
	for i, tag := range f.Tags {
		if _, n := message.SplitTag(tag); n > 1 && i >= len(f.Fails) {
			r.t.Errorf("%s has no record in %q", names(tag), f.Fails)
		}
		if e, err := message.DecodeEnvelope(f.Envelopes[i]); err != nil || e.Due > int64(f.Now) {
			r.t.Errorf("handed out %s at %v: %+v, %v", names(tag), r.since(int64(f.Now)), e, err)
		}
	}
	return f
}

// gave notes the lease of what a fetch handed out.
func (r *rig) gave(f FetchReply) {
	for _, tag := range f.Tags {
		r.leases[tag] = f.Lease
	}
}

// records are the fail records that came with deliveries beyond the first.
func (f *FetchReply) records() []string {
	return slices.DeleteFunc(slices.Clone(f.Fails), func(record string) bool { return record == "" })
}

// take fetches for a new consumer and wants these deliveries, in order.
func (r *rig) take(want string) *Caller {
	r.t.Helper()
	c := NewCaller()
	r.equal("handed out", handed(r.fetch(c, len(strings.Fields(want)))), want)
	return c
}

// hand sends messages that are due and hands them out.
func (r *rig) hand(ms ...*SendMessage) *Caller {
	r.t.Helper()
	r.put(ms...)
	c := NewCaller()
	if f := r.fetch(c, len(ms)); len(f.Tags) != len(ms) {
		r.t.Fatalf("fetched %d of %d", len(f.Tags), len(ms))
	}
	return c
}

func handed(f taking) string { return names(strings.Join(f.Tags, " ")) }

// ack is the settlement of a delivery that has this name, and of which the message has this key.
func ack(name string, key ...string) Settlement {
	s := Settlement{Tag: tagFor(name), Key: strings.Join(key, "")}
	s.ID, s.Number = message.SplitTag(s.Tag)
	return s
}

func ends(kind OutcomeKind, name string, failures, losses int, text string, key ...string) Settlement {
	s := ack(name, key...)
	s.Kind, s.Delay, s.Failed, s.Failures, s.Losses, s.Text = kind, time.Second, failures > 0, failures, losses, text
	return s
}

func (r *rig) settle(c *Caller, all ...Settlement) []int {
	r.t.Helper()
	c.Next()
	return r.settleAgain(c, all...)
}

func (r *rig) settleAgain(c *Caller, all ...Settlement) []int {
	r.t.Helper()
	return r.settling(c, all...).Void
}

// leased gives settlements the leases under which the rig was last given their deliveries.
func (r *rig) leased(all []Settlement) []Settlement {
	for i := range all {
		if s := &all[i]; s.Lease == nil {
			if s.Lease = r.leases[s.Tag]; s.Lease == nil {
				s.Lease = &Lease{Name: "nobody:1"}
			}
		}
		all[i].Room = map[OutcomeKind]int{OutcomeGarbage: r.with.GarbageMax, OutcomeDone: r.doneMax}[all[i].Kind]
	}
	return all
}

// done settles by a caller of its own and wants nothing void.
func (r *rig) done(all ...Settlement) {
	r.t.Helper()
	if void := r.settle(NewCaller(), all...); void != nil {
		r.t.Errorf("void %v", void)
	}
}

// forgot makes the server forget, as in a failover, that it handed out a delivery, which waits again at key.
func (r *rig) forgot(key, tag string) {
	r.t.Helper()
	r.unlease(tag)
	r.do("ZADD", key, r.now, tagFor(tag))
	r.do("ZADD", r.Keys.Wake, r.now, "w")
	r.do("HSET", r.Keys.State, "armed", r.now)
}

// unlease takes a delivery out of the lease that lists it.
func (r *rig) unlease(name string) {
	r.t.Helper()
	lease := r.leases[tagFor(name)].Name
	tags := strings.Fields(r.Cli.HGet(queuetest.CtxB, r.Keys.of("lease"), lease).Val())
	left := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return tag == tagFor(name) })
	if len(left) == len(tags) {
		r.t.Fatalf("%s is not in the lease %s: %s", name, lease, names(strings.Join(tags, " ")))
	}
	if len(left) == 0 {
		r.do("ZREM", r.Keys.of("unack"), lease)
		r.do("HDEL", r.Keys.of("lease"), lease, lease+"#")
		return
	}
	r.do("HSET", r.Keys.of("lease"), lease, strings.Join(left, " "), lease+"#", len(left))
}

// What extend says of a delivery.
const (
	renewed = "renewed"
	lost    = "lost"
	gone    = "gone"
)

// extend renews the leases of deliveries, and says what became of each.
func (r *rig) extend(names ...string) (answers []string) {
	r.t.Helper()
	var leases, ids []string
	for _, name := range names {
		id, _ := message.SplitTag(tagFor(name))
		ids, leases = append(ids, id), append(leases, r.leased([]Settlement{{Tag: tagFor(name)}})[0].Lease.Name)
	}
	got, err := r.Store.Extend(queuetest.CtxB, r.with.Lease, leases, ids)
	if err != nil {
		r.t.Fatalf("extend: %v", err)
	}
	for i := range names {
		switch {
		case !got.There[i]:
			answers = append(answers, gone)
		case got.Left[i] == 0:
			answers = append(answers, lost)
		default:
			answers = append(answers, renewed)
		}
	}
	return answers
}

func (r *rig) intercept(c *Caller, by, what string) string {
	r.t.Helper()
	c.Next()
	return r.interceptAgain(c, by, what)
}

func (r *rig) interceptAgain(c *Caller, by, what string) string {
	r.t.Helper()
	return r.takeOut(c, by, what, false)
}

// cancel takes out a message also while it is handled, by a new caller.
func (r *rig) cancel(by, what string) string {
	r.t.Helper()
	c := newCall()
	return r.takeOut(c, by, what, true)
}

func (r *rig) takeOut(c *Caller, by, what string, running bool) string {
	r.t.Helper()
	got, err := r.Store.Intercept(queuetest.CtxB, c, by, what, running)
	if err != nil {
		r.t.Fatalf("intercept: %v", err)
	}
	if (got.ID == "") != (got.State == StateGone) || by == "id" && got.ID != "" && got.ID != what {
		r.t.Errorf("%s %s is %s, with the id %q", by, what, got.State, got.ID)
	}
	return got.State
}

// counts are those of the queue.
func (r *rig) counts() CountsReply {
	r.t.Helper()
	got, err := r.Store.Counts(queuetest.CtxB)
	queuetest.Must(r.t, err)
	return got
}

// queueCounts is counts without the instant from which on the books are kept.
func (r *rig) queueCounts() QueueCounts {
	r.t.Helper()
	got := r.counts().QueueCounts
	got.BooksSince = time.Time{}
	return got
}

// settling is one attempt at a call of settle.
func (r *rig) settling(c *Caller, all ...Settlement) SettleReply {
	r.t.Helper()
	got, err := r.Store.Settle(queuetest.CtxB, c, r.leased(all), false)
	queuetest.Must(r.t, err)
	return got
}

// tooLate wants the answer to a call that came after a later one.
func (r *rig) tooLate(err error) {
	r.t.Helper()
	if err == nil || !strings.Contains(err.Error(), "DQSTALE") {
		r.t.Errorf("an older call: %v, want DQSTALE", err)
	}
}
