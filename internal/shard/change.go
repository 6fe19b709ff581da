package shard

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file has what changes a queue or one message of it. The calls hide those of the first shard. A change is tried until Redis answers or
// ctx ends, in each shard by a call of its own. If that fails in some shards, the others have changed, and the error is a *MissingError.

// Reach is Look that is tried until its context ends, while nothing is known.
func (q *Queue) Reach(ctx context.Context) (*Set, error) { return q.reach(ctx, q.Known() != nil) }

func (q *Queue) reach(ctx context.Context, known bool) (*Set, error) {
	if !known {
		var got script.ShardsReply
		var begun time.Time
		err := link.Repeat(ctx, math.MaxInt, func() (err error) {
			begun = time.Now()
			got, err = q.ask(ctx)
			return err
		})
		if err != nil {
			return nil, err
		}
		return q.learn(got, begun), nil
	}
	return q.Look(ctx)
}

// change makes a call in all shards at once. A shard without any key gets one if the first shard says that the queue has it, because the change
// must hold there too when messages come. If there is no queue, change makes no key.
func change[T any](ctx context.Context, q *Queue, calls *script.LimitedCalls, f func(*script.Store, *script.Caller) (T, error)) ([]T, error) {
	set, err := q.Reach(ctx)
	if err != nil {
		return nil, err
	}
	return changeIn(ctx, set, calls, f)
}

func changeIn[T any](ctx context.Context, set *Set, calls *script.LimitedCalls, f func(*script.Store, *script.Caller) (T, error)) ([]T, error) {
	return each(ctx, set.All, func(ctx context.Context, s *script.Store) (T, error) {
		once := func() (T, error) {
			return script.Once(ctx, calls, func(c *script.Caller) (T, error) { return f(s, c) })
		}
		got, err := once()
		if s == set.All[0] || !errors.Is(err, script.ErrNoQueue) {
			return got, err
		}
		err = link.Repeat(ctx, math.MaxInt, func() error {
			said, err := set.All[0].Shards(ctx)
			if err == nil && said.N < 2 {
				return script.ErrNoQueue
			}
			if err == nil {
				_, err = s.Join(ctx, said.N, said.Names)
			}
			return err
		})
		if err != nil {
			return got, err
		}
		return once()
	})
}

// Pause stops hand-outs until an instant, or resumes them if that is 0.
func (q *Queue) Pause(ctx context.Context, calls *script.LimitedCalls, until int64, by, why string) error {
	_, err := change(ctx, q, calls, func(s *script.Store, c *script.Caller) (struct{}, error) {
		return struct{}{}, s.Pause(ctx, c, until, by, why)
	})
	return err
}

// PauseFor pauses for so many us by the clock of the first shard, and returns until when. It does nothing in the others if the first fails. If that
// instant is over by the clock of another shard, that is no error.
func (q *Queue) PauseFor(ctx context.Context, calls *script.LimitedCalls, us int64, by, why string) (until int64, err error) {
	set, err := q.Reach(ctx)
	if err == nil {
		until, err = script.Once(ctx, calls, func(c *script.Caller) (int64, error) { return set.All[0].PauseFor(ctx, c, us, by, why) })
	}
	if err != nil || len(set.All) == 1 {
		return until, err
	}
	_, err = changeIn(ctx, set, calls, func(s *script.Store, c *script.Caller) (got struct{}, err error) {
		if s != set.All[0] {
			err = s.Pause(ctx, c, until, by, why)
		}
		if errors.Is(err, message.ErrBadOption) { // the instant is over
			err = nil
		}
		return got, err
	})
	return until, err
}

// SetLimits divides limits of the whole queue among its shards (Divide), and returns what they were.
func (q *Queue) SetLimits(ctx context.Context, calls *script.LimitedCalls, l script.RateLimits) (before script.RateLimits, err error) {
	set, err := q.Reach(ctx)
	if err != nil {
		return before, err
	}
	part, err := Divide(l, len(set.All))
	if err != nil {
		return before, err
	}
	got, err := changeIn(ctx, set, calls, func(s *script.Store, c *script.Caller) (script.RateLimits, error) { return s.SetLimits(ctx, c, part) })
	return Whole(firstOf(got), len(set.All)), err
}

// LiftThrottle says whether a shard was throttled.
func (q *Queue) LiftThrottle(ctx context.Context, calls *script.LimitedCalls) (lifted bool, err error) {
	got, err := change(ctx, q, calls, func(s *script.Store, c *script.Caller) (bool, error) { return s.LiftThrottle(ctx, c) })
	return slices.Contains(got, true), err
}

// AcceptBalance counts what is there as right, and returns how many messages were missing in all shards together.
func (q *Queue) AcceptBalance(ctx context.Context, calls *script.LimitedCalls) (missing int64, err error) {
	got, err := change(ctx, q, calls, func(s *script.Store, c *script.Caller) (int64, error) { return s.AcceptBalance(ctx, c) })
	for _, n := range got {
		missing += n
	}
	return missing, err
}

// byName is the shard of a name, for a change.
func (q *Queue) byName(ctx context.Context, name string) (*script.Store, error) {
	set, err := q.reach(ctx, q.settled.Load())
	if err != nil {
		return nil, err
	}
	return set.All[set.Named(name)], nil
}

// by is By, for a change. An id of the first shard, which is all of a queue with one, asks for nothing.
func (q *Queue) by(ctx context.Context, by, what string) (*script.Store, error) {
	switch {
	case by == "key":
		return q.byName(ctx, what)
	case message.ShardIn(what) > 0:
		if _, err := q.Reach(ctx); err != nil {
			return nil, err
		}
	}
	return q.ByID(ctx, what)
}

// DropSequence says whether there was one.
func (q *Queue) DropSequence(ctx context.Context, calls *script.LimitedCalls, name string) (bool, error) {
	s, err := q.byName(ctx, name)
	if err != nil {
		return false, err
	}
	return script.Once(ctx, calls, func(c *script.Caller) (bool, error) { return s.DropSequence(ctx, c, name) })
}

// PassSequence moves a sequence on to n, if it is not further, and says where it was; false if there was none.
func (q *Queue) PassSequence(ctx context.Context, calls *script.LimitedCalls, name string, n int64) (before int64, was bool, err error) {
	s, err := q.byName(ctx, name)
	if err == nil {
		err = calls.Call(ctx, func(c *script.Caller) (err error) {
			before, was, err = s.PassSequence(ctx, c, name, n)
			return err
		})
	}
	return before, was, err
}

// SteerOne is that of the shard of the target.
func (q *Queue) SteerOne(ctx context.Context, calls *script.LimitedCalls, do script.SteerRequest) (script.Steered, error) {
	s, err := q.by(ctx, do.Only, do.Targets[0].Tag)
	if err != nil {
		return script.Steered{}, err
	}
	return s.SteerOne(ctx, calls, do)
}

// InterceptWith is that of the shard of the message.
func (q *Queue) InterceptWith(ctx context.Context, calls *script.LimitedCalls, by, what string, running bool) (got script.InterceptReply, err error) {
	s, err := q.by(ctx, by, what)
	if err != nil {
		return got, err
	}
	return s.InterceptWith(ctx, calls, by, what, running)
}

// errAlive: a consumer has started while the queue was being deleted.
var errAlive = errors.New("a consumer has started meanwhile")

// Drop deletes the queue, if no consumer is alive in any shard, or with force. It returns how many are alive, and how many messages were deleted. The
// first shard is the last that is deleted, because it says how many there are. So after an error the call can be made again.
func (q *Queue) Drop(ctx context.Context, force bool) (alive, messages int, err error) {
	set, err := q.look(ctx, 0)
	if errors.Is(err, script.ErrWrongType) { // the state is of another program, and goes with the rest
		set, err = &Set{All: []*script.Store{q.Store}, Names: 1}, nil
	}
	if err != nil {
		return 0, 0, err
	}
	if len(set.All) == 1 {
		return q.Store.Drop(ctx, force)
	}
	if alive, err = mayDrop(ctx, set, force); alive > 0 || err != nil {
		return alive, 0, err
	}
	dropped, none := 0, 0
	drop := func(ctx context.Context, s *script.Store) (int, error) {
		alive, messages, err := s.Drop(ctx, force)
		if alive > 0 && err == nil {
			err = errAlive
		}
		if errors.Is(err, script.ErrNoQueue) {
			messages, err = -1, nil
		}
		return messages, err
	}
	for i := len(set.All) - 1; i >= 0; i-- {
		n, err := drop(ctx, set.All[i])
		if err != nil {
			if err = set.Failed(i, err); dropped > 0 {
				err = &MissingError{dropped, len(set.All), err}
			}
			return 0, messages, err
		}
		if n < 0 {
			none++
		}
		dropped, messages = dropped+1, messages+max(n, 0)
	}
	q.settled.Store(false) // the next look says how many there are
	q.known.Store(q.First())
	q.looked.Set(time.Now().Add(-time.Hour))
	if none == len(set.All) {
		return 0, 0, script.ErrNoQueue
	}
	return 0, messages, nil
}

// mayDrop looks at all shards before the first is deleted. Like drop.lua, it lets a key pass that is of another program.
func mayDrop(ctx context.Context, set *Set, force bool) (alive int, err error) {
	got, err := readEach(ctx, set, func(ctx context.Context, s *script.Store) (ids []string, err error) {
		c, err := s.Counts(ctx)
		if err == nil {
			err = script.CheckLayout(c.Layout)
		}
		if errors.Is(err, script.ErrWrongType) {
			err = nil
		}
		if err != nil || force {
			return nil, err
		}
		entries, err := entriesOf(ctx, s)
		if errors.Is(err, script.ErrWrongType) {
			err = nil
		}
		for _, e := range entries {
			if lives(&e) {
				ids = append(ids, e.ID)
			}
		}
		return ids, err
	})
	var missing *MissingError
	if errors.As(err, &missing) {
		err = missing.Err // nothing was done
	}
	all := map[string]bool{}
	for _, ids := range got {
		for _, id := range ids {
			all[id] = true
		}
	}
	return len(all), err
}

// lives is the rule of drop.lua.
func lives(e *script.ConsumerEntry) bool {
	words := strings.SplitN(e.Text, " ", 3)
	if len(words) != 3 {
		return false
	}
	heard, err := strconv.ParseInt(words[0], 10, 64)
	lease, lerr := strconv.ParseInt(words[1], 10, 64)
	return err == nil && lerr == nil && max(e.Now-heard, heard-e.Now) <= max(lease, script.MinAlive.Microseconds())
}
