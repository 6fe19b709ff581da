package script

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// A machine makes the same calls on both. It is the client of the store: each script call takes
// the clock along, and brings back what Redis holds after it.
type machine struct {
	redis.UniversalClient
	store   *Store
	clock   string             // key of the server's clock
	scripts map[string]*Script // by sum or text of the original: those that read that clock
	most    int                // messages of a call
	made    *atomic.Int64      // calls compared

	// Of a sequence.
	*model
	doneMax  int      // of settlements
	limiting bool     // there are limits
	held     contents // what Redis held after the last call
	blind    bool     // answers are compared, and not what Redis holds
	seed     int64    // of the next fetch
	calls    [4][]func(t *rapid.T)
	who      [4]Caller
	sent     int
	given    []taken         // the newest first
	alone    map[string]bool // by id: the last delivery was asked for alone
	reserved string          // by the last fetch
	told     bool            // by the last fetch: a tick is due
	ticks    map[string]bool // callers that have ticked
	spent    map[spent]bool
}

// spent is a delivery for which a settlement was made.
type spent struct{ lease, tag string }

func newMachine(t *testing.T, most int, made *atomic.Int64) *machine {
	cli := redis.NewClient(&redis.Options{Addr: queuetest.Shared.Addr(), ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = cli.Close() })
	m := &machine{UniversalClient: cli, clock: t.Name() + " ", scripts: map[string]*Script{}, most: most, made: made}
	m.store = NewStore(m, "dq", strings.ReplaceAll(t.Name(), "/", "_"))
	m.store.AttemptTimeout = time.Minute // a call is made once, however busy the machine is
	for _, s := range everyScript {
		clock := fmt.Sprintf("redis.call('MGET', '%ss', '%[1]sus')", m.clock)
		clocked := New("", strings.ReplaceAll(s.Text, "redis.call('TIME')", clock))
		m.scripts[s.SHA], m.scripts[s.Text] = clocked, clocked
	}
	t.Cleanup(func() { m.delete(m.clock+"s", m.clock+"us") })
	return m
}

// delete removes the queue, and what else is named.
func (m *machine) delete(keys ...any) {
	m.UniversalClient.Do(queuetest.CtxB, slices.Concat([]any{"del"}, keys, m.store.Keys.all)...)
}

// contentsScript returns each structure as a count and its members, scores, fields and values.
var contentsScript = New(numberedKeys(`
local out = {}
local function put(list)
  out[#out + 1] = #list
  for i = 1, #list do out[#out + 1] = list[i] end
end
for _, key in ipairs({KEYS.pending, KEYS.unack, KEYS.retry, KEYS.garbage, KEYS.done, KEYS.holds,
  KEYS.waiting, KEYS.lanes}) do
  put(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'))
end
for _, key in ipairs({KEYS.msg, KEYS.fail, KEYS.key, KEYS.sequence, KEYS.result, KEYS.parts,
  KEYS.lease, KEYS.history}) do
  put(redis.call('HGETALL', key))
end
put(redis.call('LRANGE', KEYS.ready, 0, -1))
out[#out + 1] = redis.call('ZSCORE', KEYS.wake, 'w') or '0'
local numbers = {'armed', 'seen', 'canceled', 'pause', 'ticked', 'done', 'holds', 'aging',
  'in:stored', 'delivered', 'out:acked', 'failed', 'lost', 'garbage', 'superseded', 'started', 'late', 'latest'}
for _, name in ipairs(numbers) do out[#out + 1] = redis.call('HGET', KEYS.state, name) or '0' end
for _, name in ipairs({'paused', 'grace', 'lease', 'limits', 'override', 'tat', 'throttled', 'limited'}) do
  out[#out + 1] = redis.call('HGET', KEYS.state, name) or ''
end
out[#out + 1] = redis.call('HGET', KEYS.state, 'told') or '0 0'
local fields = redis.call('HGETALL', KEYS.state)
for i = 1, #fields, 2 do
  if fields[i] == 'kept' or string.find(fields[i], '^in:') or string.find(fields[i], '^out:') then
    out[#out + 1], out[#out + 2] = fields[i], fields[i + 1]
  end
end
return out`))

// pairsOf reads a number of elements, and names and values in turn.
func pairsOf[V any](r *reply, value func() V) map[string]V {
	all := map[string]V{}
	for range r.number() / 2 {
		name := r.text()
		all[name] = value()
	}
	return all
}

// Process makes a script call.
func (m *machine) Process(ctx context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	s := m.scripts[args[1].(string)]
	if s == nil { // what a fetch handed out is read
		return m.UniversalClient.Process(ctx, cmd)
	}
	if args[1] == FetchScript.SHA || args[1] == FetchScript.Text {
		args[5+len(FetchScript.keys)] = m.seed
	}
	args[1] = s.SHA
	if cmd.Name() == "eval" {
		args[1] = s.Text
	}
	pipe := m.Pipeline()
	pipe.MSet(ctx, m.clock+"s", m.now/1e6, m.clock+"us", m.now%1e6)
	_ = pipe.Process(ctx, cmd)
	if m.blind {
		_, err := pipe.Exec(ctx)
		return err
	}
	held := redis.NewStringSliceCmd(ctx, contentsScript.command(false, m.store.Keys, nil)...)
	_ = pipe.Process(ctx, held)
	_, _ = pipe.Exec(ctx) // each has its own error
	if held.Err() != nil {
		return held.Err()
	}
	r := &reply{rest: held.Val()}
	m.held = newContents()
	for _, set := range m.held.sets() {
		*set = pairsOf(r, r.int64)
	}
	for _, hash := range m.held.hashes() {
		*hash = pairsOf(r, r.text)
	}
	m.held.ready = slices.Concat(r.take(r.number())) // nil if empty
	for _, n := range m.held.numbers() {
		*n = r.int64()
	}
	for i := range m.held.counts {
		m.held.counts[i] = r.int64()
	}
	m.held.paused, m.held.grace, m.held.lease = r.text(), r.text(), r.text()
	copy(m.held.limited[:], r.take(len(m.held.limited)))
	for i, told := range strings.Fields(r.text()) { // what history has of the totals
		n, _ := strconv.ParseInt(told, 10, 64)
		m.held.counts[2*i] -= n
	}
	for len(r.rest) > 0 && r.bad == nil {
		if name, n := r.text(), r.int64(); n != 0 {
			m.held.books[name] = n
		}
	}
	return errors.Join(r.err("contents"), cmd.Err())
}

func must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// same compares an answer, and all that Redis holds.
func (m *machine) same(t *rapid.T, what string, got any, err error, want any) {
	t.Helper()
	if refusal, ok := want.(error); ok {
		if err == nil || !errors.Is(err, refusal) && !strings.HasPrefix(err.Error(), refusal.Error()) {
			t.Errorf("%s: %v, want %v", what, err, refusal)
		}
	} else if err != nil {
		t.Fatalf("%s: %v", what, err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %s\nwant %s", what, names(fmt.Sprintf("%+v", got)), names(fmt.Sprintf("%+v", want)))
	}
	expected := m.model.contents
	expected.lanes, expected.limited, expected.ready = m.laneMembers(), m.limits.fields(), slices.Concat(m.ready)
	if m.blind {
		m.held = expected
	}
	if !reflect.DeepEqual(m.held, expected) {
		g, w := reflect.ValueOf(m.held), reflect.ValueOf(expected)
		for i := range g.NumField() {
			if got, want := fmt.Sprint(g.Field(i)), fmt.Sprint(w.Field(i)); got != want {
				t.Errorf("after %s at %d: %s is %s\nwant %s", what, m.now, g.Type().Field(i).Name, names(got), names(want))
			}
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	m.made.Add(1)
}

// ids are some of the messages that are there, and at times the newest, which may be gone, or one that was never sent.
func (m *machine) ids(t *rapid.T) []string {
	there := slices.Sorted(maps.Keys(m.msg))
	for n := range 3 {
		if id := queuetest.IDOf(strconv.Itoa(m.sent + 1 - n)); m.msg[id] == "" {
			there = append(there, id)
		}
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(there), 1, min(len(there), m.most, 20), rapid.ID[string]).Draw(t,
		"ids")
}

func (m *machine) intercepts(t *rapid.T) {
	by, what := "key", rapid.SampledFrom([]string{"k1", "k2", "k3"}).Draw(t, "key")
	if rapid.Bool().Draw(t, "by id") {
		by, what = "id", m.ids(t)[0]
	}
	running := rapid.Bool().Draw(t, "also while it is being handled")
	m.call(t, func(t *rapid.T, c Caller) {
		got, err := m.store.Intercept(queuetest.CtxB, &c, by, what, running)
		m.same(t, "intercept", got, err, m.existing(c, func() any { return m.intercept(by, what, running) }))
	})
}

// layouts lets a newer version take over the queue, or give it back.
func (m *machine) layouts(t *rapid.T) {
	m.newer = !m.newer
	err := m.UniversalClient.HDel(queuetest.CtxB, m.store.Keys.State, "layout").Err()
	if m.newer {
		err = m.HSet(queuetest.CtxB, m.store.Keys.State, "layout", "2").Err()
	}
	must(t, err)
}

// pauses for some seconds, for ever, or not at all.
func (m *machine) pauses(t *rapid.T) {
	until := rapid.OneOf(rapid.Just(int64(0)), rapid.Just(int64(0)), rapid.Int64Range(m.now-1, m.now+4e6)).Draw(t, "until")
	if rapid.IntRange(0, 9).Draw(t, "for ever if 9") == 9 {
		until = message.Forever
	}
	by, why := rapid.SampledFrom([]string{"", "ann"}).Draw(t, "by"),
		rapid.SampledFrom([]string{"", "12 is full"}).Draw(t, "why")
	m.call(t, func(t *rapid.T, c Caller) { m.doPause(t, c, until, by, why) })
}

func (m *machine) doPause(t *rapid.T, c Caller, until int64, by, why string) {
	err := m.store.Pause(queuetest.CtxB, &c, until, by, why)
	m.same(t, "pause", nil, err, m.existing(c, func() any { return m.setPause(until, by, why) }))
}

func (m *machine) steers(t *rapid.T) {
	do := SteerRequest{
		What: rapid.SampledFrom([]string{"at", "by", "requeue", "delete", "cancel"}).Draw(t, "what"),
		Us:   rapid.Int64Range(-5e6, 8e6).Draw(t, "us"), Step: rapid.Int64Range(0, 1000).Draw(t, "step"),
	}
	ids := m.ids(t)
	_, place, _ := m.found(ids[0], "")
	do.Only = rapid.SampledFrom([]string{"", place, "pending", "garbage", "retry", "ready", "unack", "done",
		"waiting"}[:rapid.SampledFrom([]int{2, 9}).Draw(t, "of")]).Draw(t, "only")
	do.Anew = rapid.Bool().Draw(t, "anew")
	if do.What != "by" {
		do.Us += m.now
	}
	for _, id := range ids {
		at := Spot{Tag: id}
		if do.Only != "" { // as a list would have found it, or before it has moved
			tag, _, score := m.found(id, do.Only)
			at.Tag, at.Score = tag,
				rapid.SampledFrom([]string{strconv.FormatInt(score, 10), strconv.FormatInt(score, 10), "", "1"}).Draw(t, "score")
		}
		do.Targets = append(do.Targets, at)
	}
	if rapid.IntRange(0, 9).Draw(t, "a key") == 0 {
		do = SteerRequest{What: SteerRelease, Only: "key",
			Targets: []Spot{{Tag: rapid.SampledFrom([]string{"k1", "k2", "k3"}).Draw(t, "release")}}}
	}
	if rapid.IntRange(0, 4).Draw(t, "skip") == 0 && do.Only == "" {
		do = SteerRequest{What: rapid.SampledFrom([]string{SteerLast, SteerGarbage}).Draw(t, "to"), Targets: do.Targets}
		for i := range do.Targets {
			do.Targets[i].Score = "skipped" // the error
		}
	}
	m.call(t, func(t *rapid.T, c Caller) {
		got, err := m.store.Steer(queuetest.CtxB, &c, do)
		m.same(t, "steer", got, err, m.existing(c, func() any { return m.steer(do) }))
	})
}

// message draws a message, which is due as like says, without a key, or as is drawn.
func (m *machine) message(t *rapid.T, like *message.When) *SendMessage {
	e, due := m.content(t, like)
	return &SendMessage{ID: queuetest.IDOf(e.Payload), Key: e.Key, When: due, Version: e.Version(), Text: e.Encode(due)}
}

// content draws what a message holds, and when it is due.
func (m *machine) content(t *rapid.T, like *message.When) (message.Envelope, message.When) {
	m.sent++
	e := message.Envelope{Payload: strconv.Itoa(m.sent), Retries: 3}
	if like == nil {
		like = &message.When{Us: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 8e6)).Draw(t, "delay")}
		if rapid.IntRange(0, 2).Draw(t, "an instant if 2") == 2 {
			like = &message.When{Us: m.now + rapid.Int64Range(-1e6, 8e6).Draw(t, "when"), Absolute: true}
		}
		e.Key = rapid.SampledFrom([]string{"", "k1", "k2", "k3"}).Draw(t, "key")
	}
	if rapid.IntRange(0, 2).Draw(t, "a TTL if 2") == 2 {
		e.TTL, e.Headers = time.Second, map[string]string{"h": e.Payload}
	}
	if rapid.IntRange(0, 3).Draw(t, "limits if 3") == 3 {
		e.Timeout, e.Deadline = time.Second, m.now+rapid.SampledFrom([]int64{1e6, 4e6, 8e6}).Draw(t, "deadline")
	}
	if rapid.Bool().Draw(t, "kept") {
		e.Retention = rapid.SampledFrom([]time.Duration{time.Second, 8 * time.Second, time.Minute}).Draw(t, "retention")
	}
	if e.Key != "" && rapid.Bool().Draw(t, "its key is held") {
		e.KeyHold = time.Duration(rapid.Int64Range(1000, 8e6).Draw(t, "hold")) * time.Microsecond
	}
	e.Counts = rapid.SampledFrom([]string{"", "", "k1", "k2", "k3"}).Draw(t, "counts")
	if like.Absolute && rapid.Bool().Draw(t, "of version 2") {
		e.Deadline = cmp.Or(e.Deadline, 1<<52)
	}
	return e, *like
}

// whereabouts says where Redis has each message, and "" for one that is gone since it was last asked.
func (m *machine) whereabouts() map[string]string {
	places := map[string]string{}
	for tag := range m.allHeld() { // a lease may list what has ended
		places[queuetest.IDIn(tag)] = "held " + tag
	}
	for i, set := range []map[string]int64{m.held.pending, m.held.garbage, m.held.done, m.held.waiting} {
		for tag := range set {
			places[queuetest.IDIn(tag)] = strconv.Itoa(i) + tag
		}
	}
	for tag, at := range m.held.retry { // one that is set aside is moved
		places[queuetest.IDIn(tag)] = strconv.FormatInt(at, 10)
	}
	for _, tag := range m.held.ready {
		places[queuetest.IDIn(tag)] = tag
	}
	return places
}
