package shard

import (
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A rig is a queue with shards on one server.
type rig struct {
	*queuetest.Base
	*Queue
	set   *Set
	calls script.LimitedCalls
}

func newRig(t *testing.T, shards int) *rig {
	t.Helper()
	f := queuetest.NewBase(t)
	r := &rig{Base: f, Queue: New(script.NewStore(f.Cli, "dq", f.Name), 0)}
	if shards > 0 {
		f.Must(queuetest.Failure(r.Shards(queuetest.CtxB, shards)))
	}
	var err error
	if r.set, err = r.Look(queuetest.CtxB); err != nil || len(r.set.All) != max(shards, 1) {
		t.Fatalf("%+v, %v", r.set, err)
	}
	for _, s := range r.set.All {
		if name := strings.TrimSuffix(strings.TrimPrefix(s.Keys.State, "{dq:"), "}:state"); name != f.Name {
			f.Named(name)
		}
	}
	t.Cleanup(func() { // the checker knows the field of no shards
		for _, s := range r.set.All {
			f.Cli.HDel(queuetest.CtxB, s.Keys.State, "shards")
		}
	})
	return r
}

// send sends a message to a shard, and returns its id.
func (r *rig) send(shard int, payload string, d time.Duration, opts ...func(*message.Envelope)) string {
	r.T.Helper()
	e, w := message.Envelope{Payload: payload, Retries: 3}, message.When{Us: d.Microseconds()}
	for _, opt := range opts {
		opt(&e)
	}
	ids := message.NewIDSource()
	m := script.SendMessage{ID: message.WithShard(ids.Next(), r.set.At(shard)), Key: e.Key, When: w, Version: e.Version(),
		Text: e.Encode(w)}
	if e.Lane.Width > 0 {
		m.Put = &script.PutOptions{Laned: true}
	}
	_, err := r.set.All[shard].Send(queuetest.CtxB, script.NewCaller(),
		script.SendRequest{Messages: []*script.SendMessage{&m}})
	r.Must(err)
	return m.ID
}

// inLane gives a message a lane.
func inLane(name string) func(*message.Envelope) {
	return func(e *message.Envelope) { e.Lane = message.Lane{Name: name, Width: 1} }
}

// consumer lets a consumer of this name fetch from a shard, so that it is alive there.
func (r *rig) consumer(shard int, name string, limits script.RateLimits) {
	r.T.Helper()
	_, err := r.set.All[shard].Fetch(queuetest.CtxB, &script.Caller{ID: name, N: 1}, script.FetchRequest{
		Presence: `{"host":"h","pid":1,"up":1000,"concurrency":2}`,
		Settings: &script.FetchSettings{Lease: time.Hour, MaxLosses: 3}, Limits: limits,
	})
	r.Must(err)
}

// base is how the keys of a shard begin.
func (r *rig) base(shard int) string { return strings.TrimSuffix(r.set.All[shard].Keys.State, "state") }

// spoil makes a key of a shard another program's, until undo or the end of the test.
func (r *rig) spoil(shard int, structure string) (undo func()) {
	r.T.Helper()
	key := r.base(shard) + structure
	r.Must(r.Cli.Set(queuetest.CtxB, key, "x", 0).Err())
	undo = func() { r.Cli.Del(queuetest.CtxB, key) }
	r.T.Cleanup(undo)
	return undo
}
