package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// each reads the counts of each shard.
func (r *rig) each() (all []script.CountsReply) {
	r.T.Helper()
	for _, s := range r.set.All {
		c, err := s.Counts(queuetest.CtxB)
		r.Must(err)
		all = append(all, c)
	}
	return all
}

// TestPauseOfAllShards: a pause holds in all shards, also where no message has ever come, and ends in all at one
// instant.
func TestPauseOfAllShards(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	r.send(1, "x", 0)
	until, err := r.PauseFor(queuetest.CtxB, &r.calls, time.Hour.Microseconds(), "me", "why")
	r.Must(err)
	for i, c := range r.each() {
		if !c.Paused || !c.PausedUntil.Equal(message.InstantTime(until)) || c.PausedBy != "me" || c.PauseReason != "why" {
			t.Errorf("shard %d: %+v", i, c)
		}
	}
	r.Must(r.Pause(queuetest.CtxB, &r.calls, message.Forever, "", ""))
	if c, err := r.ReadCounts(queuetest.CtxB); err != nil || !c.Paused || !c.PausedUntil.IsZero() {
		t.Errorf("%+v, %v", c, err)
	}
	undo := r.spoil(2, "wake")
	err = r.Pause(queuetest.CtxB, &r.calls, 0, "", "")
	if missing(t, "resume", err, 2, 3); !strings.HasPrefix(err.Error(), "resumed in 2 of 3 shards, not in shard 3: ") ||
		!strings.HasSuffix(err.Error(), "; repeat the call when its node is back") {
		t.Error(err)
	}
	if c := r.each(); c[0].Paused || c[1].Paused || !c[2].Paused {
		t.Errorf("resumed in part: %+v", c)
	}
	if c, err := r.ReadCounts(queuetest.CtxB); err != nil || !c.Paused {
		t.Errorf("resumed in part: %+v, %v", c, err)
	}
	undo()
	r.Must(r.Pause(queuetest.CtxB, &r.calls, 0, "", ""))
	if c, err := r.ReadCounts(queuetest.CtxB); err != nil || c.Paused {
		t.Errorf("%+v, %v", c, err)
	}
	r.spoil(0, "wake") // then another clock counts
	until, err = r.PauseFor(queuetest.CtxB, &r.calls, time.Hour.Microseconds(), "", "")
	missing(t, "pause", err, 2, 3)
	for i, c := range r.each() {
		if c.Paused != (i > 0) || c.Paused && !c.PausedUntil.Equal(message.InstantTime(until)) {
			t.Errorf("shard %d: %+v", i, c)
		}
	}
}

// TestChangeOfNoQueue: a change of a queue that was deleted makes no key.
func TestChangeOfNoQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.Must(r.Base.Cli.Del(queuetest.CtxB, r.set.All[0].Keys.State, r.set.All[1].Keys.State).Err())
	if err := r.Pause(queuetest.CtxB, &r.calls, message.Forever, "", ""); !errors.Is(err, script.ErrNoQueue) {
		t.Errorf("pause: %v", err)
	}
	if _, err := r.PauseFor(queuetest.CtxB, &r.calls, 1e6, "", ""); !errors.Is(err, script.ErrNoQueue) {
		t.Errorf("pause: %v", err)
	}
	if n := r.Base.Cli.Exists(queuetest.CtxB, r.set.All[0].Keys.State, r.set.All[1].Keys.State).Val(); n != 0 {
		t.Errorf("%d keys", n)
	}
}

// TestLimitsOfAllShards: each shard has its part.
func TestLimitsOfAllShards(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	for i := range 2 {
		r.consumer(i, "c", script.RateLimits{Concurrency: 4})
	}
	l := script.RateLimits{Rate: 10, Per: time.Minute, Burst: 4, Concurrency: 3}
	before, err := r.SetLimits(queuetest.CtxB, &r.calls, l)
	if err != nil || before != (script.RateLimits{}) {
		t.Errorf("before: %v, %v", before, err)
	}
	for i, c := range r.each() {
		if c.Set != (script.RateLimits{Rate: 10, Per: 2 * time.Minute, Burst: 2, Concurrency: 2}) {
			t.Errorf("shard %d: %v", i, c.Set)
		}
	}
	l.Concurrency = 4 // rounded up
	if c, err := r.ReadCounts(queuetest.CtxB); err != nil || c.Set != l || c.Asked.Concurrency != 8 {
		t.Errorf("%v, %v, %v", c.Set, c.Asked, err)
	}
	if before, err = r.SetLimits(queuetest.CtxB, &r.calls, script.RateLimits{}); err != nil || before != l {
		t.Errorf("before: %v, %v", before, err)
	}
	if _, err = r.SetLimits(queuetest.CtxB, &r.calls,
		script.RateLimits{Rate: 1, Per: 365 * 24 * time.Hour, Burst: 1}); !errors.Is(err, message.ErrBadOption) {
		t.Errorf("too slow: %v", err)
	}
}

// TestThrottleAndBooksOfAllShards: what one shard says counts for the queue.
func TestThrottleAndBooksOfAllShards(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	id := r.send(1, "x", 0)
	r.send(0, "y", 0)
	r.Must(r.Base.Cli.HSet(queuetest.CtxB, r.set.All[1].Keys.State, "throttled",
		fmt.Sprint(time.Now().UnixMicro()-1, " ", time.Now().Add(time.Minute).UnixMicro())).Err())
	if c, err := r.ReadCounts(queuetest.CtxB); err != nil || c.ThrottledUntil.IsZero() {
		t.Errorf("%+v, %v", c, err)
	}
	for _, want := range []bool{true, false} {
		if lifted, err := r.LiftThrottle(queuetest.CtxB, &r.calls); lifted != want || err != nil {
			t.Errorf("lifted %v, %v", lifted, err)
		}
	}
	for _, key := range []string{"pending", "msg"} {
		do := map[string]string{"pending": "ZREM", "msg": "HDEL"}[key]
		r.Must(r.Base.Cli.Do(queuetest.CtxB, do, r.base(1)+key, id).Err())
	}
	for _, want := range []int64{1, 0} {
		if got, err := r.AcceptBalance(queuetest.CtxB, &r.calls); got.Missing != want || err != nil {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// TestDropOfAllShards: nothing is deleted if any shard holds something, and the first shard is deleted last.
func TestDropOfAllShards(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	for i := range 3 {
		r.send(i, "x", 0)
	}
	n, err := r.Drop(queuetest.CtxB, false)
	if n != 0 || !errors.Is(err, script.ErrNotEmpty) || errors.Is(err, script.ErrConsumersAlive) ||
		!strings.Contains(err.Error(), "messages: 3, schedules: 0") {
		t.Errorf("%d deleted, %v", n, err)
	}
	r.consumer(2, "c", script.RateLimits{})
	n, err = r.Drop(queuetest.CtxB, false)
	if n != 0 || !errors.Is(err, script.ErrNotEmpty) || !errors.Is(err, script.ErrConsumersAlive) {
		t.Errorf("%d deleted, %v", n, err)
	}
	if c, err := r.ReadCounts(queuetest.CtxB); err != nil || c.Ready != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	r.Must(r.Base.Cli.HSet(queuetest.CtxB, r.set.All[0].Keys.State, "layout", "2").Err())
	if _, err := r.Drop(queuetest.CtxB, true); !errors.Is(err, script.ErrUnknownLayout) {
		t.Errorf("layout: %v", err)
	}
	r.Must(r.Base.Cli.HDel(queuetest.CtxB, r.set.All[0].Keys.State, "layout").Err())
	if c, err := r.ReadCounts(queuetest.CtxB); err != nil || c.Ready != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	r.spoil(1, "waiting")
	if n, err := r.Drop(queuetest.CtxB, true); n != 3 || err != nil {
		t.Errorf("%d deleted, %v", n, err)
	}
	if set, err := r.Look(queuetest.CtxB); err != nil || len(set.All) != 1 {
		t.Errorf("%+v, %v", set, err)
	}
}

// TestOneMessage: a call for one message goes to its shard.
func TestOneMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	ids := make([]string, 4)
	for i := range ids {
		ids[i] = r.send(i, "x", time.Hour)
	}
	if s, err := r.By(queuetest.CtxB, "id", "no id"); err != nil || s != r.set.All[0] {
		t.Errorf("what is no id is in %+v, %v", s, err)
	}
	for i, id := range ids {
		do := script.SteerRequest{What: script.SteerAt, Targets: []script.Spot{{Tag: id}}}
		if got, err := r.SteerOne(queuetest.CtxB, &r.calls, do); err != nil || !got.Done {
			t.Errorf("steer in shard %d: %+v, %v", i, got, err)
		}
		if got, err := r.InterceptWith(queuetest.CtxB, &r.calls, "id", id, false); err != nil || !got.Out(false) ||
			got.State != "ready" || got.ID != id {
			t.Errorf("intercept in shard %d: %+v, %v", i, got, err)
		}
	}
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		r.send(r.set.Named(key), key, time.Hour, func(e *message.Envelope) { e.Key = key })
		do := script.SteerRequest{What: script.SteerAt, Only: "key", Targets: []script.Spot{{Tag: key}}}
		if got, err := r.SteerOne(queuetest.CtxB, &r.calls, do); err != nil || !got.Done {
			t.Errorf("steer key %s: %+v, %v", key, got, err)
		}
		if got, err := r.InterceptWith(queuetest.CtxB, &r.calls, "key", key, false); err != nil || !got.Out(false) {
			t.Errorf("intercept key %s: %+v, %v", key, got, err)
		}
	}
}

// TestSequencesOfAllShards: a sequence is in the shard of its name, and the pages meet each of them.
func TestSequencesOfAllShards(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for i, name := range names {
		if _, was, err := r.PassSequence(queuetest.CtxB, &r.calls, name, int64(i+1)); was || err != nil {
			t.Errorf("pass: %v, %v", was, err)
		}
		if got, err := r.set.All[r.set.Named(name)].Sequences(queuetest.CtxB, name, "0"); err != nil || len(got.Found) != 1 ||
			got.Found[0].Last != int64(i+1) {
			t.Errorf("%s is not in its shard: %+v, %v", name, got, err)
		}
		if got, err := r.Sequences(queuetest.CtxB, name, "0"); err != nil || len(got.Found) != 1 || got.Cursor != "0" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	var met []string
	for cursor, pages := "0", 0; cursor != "0" || pages == 0; pages++ {
		got, err := r.Sequences(queuetest.CtxB, "", cursor)
		r.Must(err)
		for _, s := range got.Found {
			met = append(met, s.Name)
		}
		if cursor = got.Cursor; pages > 4 {
			t.Fatal("the pages have no end")
		}
	}
	if slices.Sort(met); !slices.Equal(met, names) {
		t.Errorf("met %v", met)
	}
	for _, want := range []bool{true, false} {
		if was, err := r.DropSequence(queuetest.CtxB, &r.calls, "c"); was != want || err != nil {
			t.Errorf("dropped %v, %v", was, err)
		}
	}
}

// TestLanesOfAllShards: a lane is in the shard of its name, and the pages meet each of them once.
func TestLanesOfAllShards(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	names := []string{"a", "b", "c", "d", "e/1", "f", "g", "h"}
	for _, name := range names {
		for range 2 {
			r.send(r.set.Named(name), name, time.Hour, inLane(name))
		}
		if got, err := r.Lanes(queuetest.CtxB, script.LanesRequest{Name: name}); err != nil || len(got.Lanes) != 1 ||
			got.Lanes[0].Waiting != 1 || got.Last != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	var met []string
	for after, pages := "", 0; after != "" || pages == 0; pages++ {
		got, err := r.Lanes(queuetest.CtxB, script.LanesRequest{After: after, Limit: 1})
		r.Must(err)
		for _, l := range got.Lanes {
			met = append(met, l.Name)
		}
		if after = got.Last; pages > 20 {
			t.Fatal("the pages have no end")
		}
	}
	if slices.Sort(met); !slices.Equal(met, names) {
		t.Errorf("met %v", met)
	}
}

// TestConsumersOfAllShards: a consumer has an entry in each shard, and the entries of shards that answer are there.
func TestConsumersOfAllShards(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	for i := range 3 {
		r.consumer(i, "c", script.RateLimits{})
	}
	if got, err := r.Queue.Consumers(queuetest.CtxB); err != nil || len(got) != 3 || got[0].ID != "c" {
		t.Errorf("%+v, %v", got, err)
	}
	r.Must(r.Base.Cli.Del(queuetest.CtxB, r.base(1)+"consumers").Err())
	defer r.spoil(1, "consumers")()
	got, err := r.Queue.Consumers(queuetest.CtxB)
	if missing(t, "consumers", err, 2, 3); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	if n, err := r.Drop(queuetest.CtxB, true); n != 0 || err != nil {
		t.Errorf("with a key of another program: %d, %v", n, err)
	}
}

// TestDropInPart: after an error the first shard still says how many there are, and the call can be made again. A
// message that is sent while the shards are deleted keeps its own.
func TestDropInPart(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	var before func() error // shard 2 is deleted, and shard 3 was before
	defer link.Interpose(r.Base.Cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			args := fmt.Sprintln(cmd.Args()...)
			if strings.Contains(args, script.DropScript.SHA) && strings.Contains(args, r.base(1)) &&
				!strings.HasSuffix(args, script.DropLook+"\n") {
				if err := before(); err != nil {
					cmd.SetErr(err)
					return err
				}
			}
			return next(ctx, cmd)
		}))()
	inPart := func(force bool, deleted int) error {
		t.Helper()
		n, err := r.Drop(queuetest.CtxB, force)
		if missing(t, "drop", err, 1, 3); n != deleted {
			t.Errorf("%d deleted, want %d", n, deleted)
		}
		if set, err := r.Ask(queuetest.CtxB, 0); err != nil || len(set.All) != 3 {
			t.Errorf("%+v, %v", set, err)
		}
		return err
	}
	before = func() error { r.send(1, "x", 0); return nil }
	if err := inPart(false, 0); !errors.Is(err, script.ErrNotEmpty) {
		t.Errorf("with a message that was sent meanwhile: %v", err)
	}
	r.send(0, "x", 0)
	r.send(2, "x", 0)
	before = func() error { return queuetest.Answer("ERR no") }
	_ = inPart(true, 1)
	before = func() error { return nil }
	if n, err := r.Drop(queuetest.CtxB, true); n != 2 || err != nil {
		t.Errorf("%d deleted, %v", n, err)
	}
}

// TestOneShardCostsOneCall: a queue that is not divided makes one call for each, and now and then one that asks for
// the number of shards.
func TestOneShardCostsOneCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	id := r.send(0, "x", time.Hour)
	var calls atomic.Int64
	defer link.Interpose(r.Base.Cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			calls.Add(1)
			return next(ctx, cmd)
		}))()
	q := New(script.NewStore(r.Base.Cli, "dq", r.Name), 0)
	var errs [14]error
	_, errs[0] = q.ReadCounts(queuetest.CtxB)
	_, errs[1] = q.Balance(queuetest.CtxB)
	_, errs[2] = q.History(queuetest.CtxB)
	_, errs[3] = q.Forecast(queuetest.CtxB, 0, time.Hour, 1)
	_, errs[4] = q.Consumers(queuetest.CtxB)
	_, errs[5] = q.Lanes(queuetest.CtxB, script.LanesRequest{Limit: 1})
	_, errs[6] = q.Sequences(queuetest.CtxB, "", "0")
	errs[7] = q.Pause(queuetest.CtxB, &r.calls, 0, "", "")
	_, errs[8] = q.PauseFor(queuetest.CtxB, &r.calls, 1e6, "", "")
	_, errs[9] = q.SetLimits(queuetest.CtxB, &r.calls, script.RateLimits{Concurrency: 1})
	_, errs[10] = q.LiftThrottle(queuetest.CtxB, &r.calls)
	_, errs[11] = q.AcceptBalance(queuetest.CtxB, &r.calls)
	_, errs[12] = q.InterceptWith(queuetest.CtxB, &r.calls, "id", id, false)
	_, errs[13] = q.DropSequence(queuetest.CtxB, &r.calls, "s")
	if err := errors.Join(errs[:]...); err != nil || calls.Load() != int64(len(errs))+1 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
	if _, err := q.Drop(queuetest.CtxB, true); err != nil || calls.Load() != int64(len(errs))+3 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

// TestChangedInPart: a pause that is not in all shards says so, and limits are those of most shards and say so, until
// the same call completes them.
func TestChangedInPart(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	for i := range 3 {
		r.send(i, "x", time.Hour)
	}
	until := time.Now().Add(time.Hour).UnixMicro()
	r.Must(r.set.All[1].Pause(queuetest.CtxB, script.NewCaller(), until, "ann", "a deploy"))
	_, err := r.set.All[1].SetLimits(queuetest.CtxB, script.NewCaller(), script.RateLimits{Concurrency: 4})
	r.Must(err)
	c, err := r.ReadCounts(queuetest.CtxB)
	if want := "only in 1 of 3 shards: a deploy"; err != nil || !c.Paused || c.PausedBy != "ann" ||
		c.PauseReason != want || c.Set.Concurrency != 0 || c.SetIn != "only in 2 of 3 shards" {
		t.Errorf("%+v, %v", c, err)
	}
	r.Must(r.Pause(queuetest.CtxB, &r.calls, until, "ann", "a deploy"))
	_, err = r.SetLimits(queuetest.CtxB, &r.calls, script.RateLimits{Concurrency: 12})
	r.Must(err)
	if c, err := r.ReadCounts(queuetest.CtxB); err != nil || !c.Paused || c.PauseReason != "a deploy" ||
		c.Set.Concurrency != 12 || c.SetIn != "" {
		t.Errorf("%+v, %v", c, err)
	}
}
