package shard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file has what changes a queue or one message of it. The calls hide those of the first shard. A change is tried
// until Redis answers or ctx ends, in each shard by a call of its own, and of several shards not for longer than
// link.Within says. If that fails in some shards, the others have changed, and the error is a *MissingError that says
// so.

// change makes a call in all shards at once. did says what it does, for the error. A shard without any key gets one if
// the first shard says that the queue has it, because the change must hold there too when messages come. If there is
// no queue, change makes no key.
func change[T any](ctx context.Context, q *Queue, calls *script.LimitedCalls, did string,
	f func(context.Context, *script.Store, *script.Caller) (T, error)) ([]T, error) {
	set, err := q.Reach(ctx)
	if err != nil {
		return nil, err
	}
	return changeIn(ctx, set, calls, did, f)
}

func changeIn[T any](ctx context.Context, set *Set, calls *script.LimitedCalls, did string,
	f func(context.Context, *script.Store, *script.Caller) (T, error)) ([]T, error) {
	return each(ctx, set.All, did, func(ctx context.Context, s *script.Store) (T, error) {
		once := func() (T, error) {
			return script.Once(ctx, calls, func(c *script.Caller) (T, error) { return f(ctx, s, c) })
		}
		got, err := once()
		if s == set.All[0] || !errors.Is(err, script.ErrNoQueue) {
			return got, err
		}
		err = link.Repeat(ctx, func() error {
			has, err := set.All[0].Shards(ctx, 0)
			if err == nil && has != len(set.All) {
				return script.ErrNoQueue
			}
			if err == nil {
				err = s.CopyShards(ctx, has)
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
	did := "paused"
	if until == 0 {
		did = "resumed"
	}
	_, err := change(ctx, q, calls, did, func(ctx context.Context, s *script.Store, c *script.Caller) (struct{}, error) {
		return struct{}{}, s.Pause(ctx, c, until, by, why)
	})
	return err
}

// PauseFor pauses for so many us by the clock of the first shard that answers, and returns until when. It does nothing
// in the others if none does. If that instant is over by the clock of another shard, that is no error.
func (q *Queue) PauseFor(ctx context.Context, calls *script.LimitedCalls, us int64, by,
	why string) (until int64, err error) {
	set, err := q.Reach(ctx)
	if err != nil {
		return 0, err
	}
	clock := 0
	for i, s := range set.All {
		one, failed := One(ctx, s, func(ctx context.Context, s *script.Store) (int64, error) {
			return script.Once(ctx, calls, func(c *script.Caller) (int64, error) { return s.PauseFor(ctx, c, us, by, why) })
		})
		if err = cmp.Or(err, failed); failed == nil {
			clock, until, err = i, one, nil
			break
		}
	}
	if err != nil || len(set.All) == 1 {
		return until, err
	}
	_, err = changeIn(ctx, set, calls, "paused", func(ctx context.Context, s *script.Store,
		c *script.Caller) (got struct{}, err error) {
		if s != set.All[clock] {
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
func (q *Queue) SetLimits(ctx context.Context, calls *script.LimitedCalls,
	l script.RateLimits) (before script.RateLimits, err error) {
	set, err := q.Reach(ctx)
	if err != nil {
		return before, err
	}
	part, err := Divide(l, len(set.All))
	if err != nil {
		return before, err
	}
	setPart := func(ctx context.Context, s *script.Store, c *script.Caller) (script.RateLimits, error) {
		return s.SetLimits(ctx, c, part)
	}
	got, err := changeIn(ctx, set, calls, "limits set", setPart)
	return Whole(commonLimits(got), len(set.All)), err
}

// LiftThrottle says whether a shard was throttled.
func (q *Queue) LiftThrottle(ctx context.Context, calls *script.LimitedCalls) (lifted bool, err error) {
	got, err := change(ctx, q, calls, "throttle lifted", func(ctx context.Context, s *script.Store,
		c *script.Caller) (bool, error) {
		return s.LiftThrottle(ctx, c)
	})
	return slices.Contains(got, true), err
}

// AcceptBalance counts what is there as right, forgets the losses that were noted, and adds up what it has accepted.
func (q *Queue) AcceptBalance(ctx context.Context, calls *script.LimitedCalls) (all script.Accepted, err error) {
	got, err := change(ctx, q, calls, "accepted", func(ctx context.Context, s *script.Store,
		c *script.Caller) (script.Accepted, error) {
		return s.AcceptBalance(ctx, c)
	})
	for _, a := range got {
		all.Missing, all.LossMessages = all.Missing+a.Missing, all.LossMessages+a.LossMessages
		all.LossSince = earlier(all.LossSince, a.LossSince)
	}
	return all, err
}

// DropSequence says whether there was one.
func (q *Queue) DropSequence(ctx context.Context, calls *script.LimitedCalls, name string) (bool, error) {
	s, err := q.by(ctx, "key", name, q.reach)
	if err != nil {
		return false, err
	}
	return script.Once(ctx, calls, func(c *script.Caller) (bool, error) { return s.DropSequence(ctx, c, name) })
}

// PassSequence moves a sequence on to n, if it is not further, and says where it was; false if there was none.
func (q *Queue) PassSequence(ctx context.Context, calls *script.LimitedCalls, name string,
	n int64) (before int64, was bool, err error) {
	s, err := q.by(ctx, "key", name, q.reach)
	if err == nil {
		err = calls.Call(ctx, func(c *script.Caller) (err error) {
			before, was, err = s.PassSequence(ctx, c, name, n)
			return err
		})
	}
	return before, was, err
}

// SteerOne is Steer of the only target, in its shard.
func (q *Queue) SteerOne(ctx context.Context, calls *script.LimitedCalls,
	do script.SteerRequest) (script.Steered, error) {
	s, err := q.by(ctx, do.Only, do.Targets[0].Tag, q.reach)
	if err != nil {
		return script.Steered{}, err
	}
	done, err := script.Once(ctx, calls, func(c *script.Caller) ([]script.Steered, error) { return s.Steer(ctx, c, do) })
	if err != nil {
		return script.Steered{}, err
	}
	return done[0], nil
}

// InterceptWith is Intercept in the shard of the message. It returns ErrNotFound for what is nowhere and can be no id,
// because a key in the place of an id would pass for a message that was handled.
func (q *Queue) InterceptWith(ctx context.Context, calls *script.LimitedCalls, by, what string,
	running bool) (got script.InterceptReply, err error) {
	s, err := q.by(ctx, by, what, q.reach)
	if err != nil {
		return got, err
	}
	got, err = script.Once(ctx, calls, func(c *script.Caller) (script.InterceptReply, error) {
		return s.Intercept(ctx, c, by, what, running)
	})
	if err == nil && got.State == script.StateGone {
		err = script.NoID(by, what)
	}
	return got, err
}

// Drop deletes the queue, and says how many messages were deleted. Without force it returns an error, and deletes
// nothing, if any shard holds something (script.Holding). The first shard is the last that is deleted, because it
// says how many there are. So after an error the call can be made again.
func (q *Queue) Drop(ctx context.Context, force bool) (messages int, err error) {
	set, err := q.look(ctx, 0)
	if errors.Is(err, script.ErrWrongType) { // the state is of another program, and goes with the rest
		set, err = &Set{All: []*script.Store{q.Store}}, nil
	}
	if err != nil {
		return 0, err
	}
	how := script.DropEmpty
	if force {
		how = script.DropAll
	}
	if len(set.All) > 1 {
		if err = mayDrop(ctx, set, force); err != nil {
			return 0, err
		}
	}
	dropped, none := 0, 0
	for i := len(set.All) - 1; i >= 0; i-- {
		found, err := set.All[i].Drop(ctx, how)
		if errors.Is(err, script.ErrNoQueue) {
			none, err = none+1, nil
		}
		if err == nil && !force {
			err = found.Refusal()
		}
		if err != nil {
			if dropped == 0 {
				return messages, set.All[i].InShard(err)
			}
			var out Absence
			for left := i; left >= 0; left-- {
				out.Leave(left, err)
			}
			return messages, out.Err(len(set.All), "deleted")
		}
		dropped, messages = dropped+1, messages+found.Messages
	}
	if q.looked.Set(time.Now().Add(-lookEvery)); q.Asked == 0 { // the queue may get another number
		q.learn(1)
	}
	if none == len(set.All) {
		return 0, script.ErrNoQueue
	}
	return messages, nil
}

// mayDrop looks at all shards before the first is deleted. A shard that fills after it was looked at refuses by itself.
func mayDrop(ctx context.Context, set *Set, force bool) error {
	got, err := readEach(ctx, set, func(ctx context.Context, s *script.Store) (script.Holding, error) {
		return s.Drop(ctx, script.DropLook)
	})
	var missing *MissingError
	if errors.As(err, &missing) {
		err = set.All[missing.Missing[0]-1].InShard(missing.Err) // nothing was done
	}
	if err != nil || force {
		return err
	}
	var all script.Holding
	for _, h := range got { // a consumer tells each shard of itself
		all.Consumers = max(all.Consumers, h.Consumers)
		all.Messages, all.Schedules = all.Messages+h.Messages, all.Schedules+h.Schedules
	}
	return all.Refusal()
}
