package delayqueue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// This file has the requests of the face to package script, and makes public types of the replies.

// stateOf is the State that scripts call by this word.
func stateOf(word string) State { return State(script.StateNumber(word)) }

// resultOf makes a Result of the reply about a message that has ended.
func resultOf(id string, said *script.AwaitReply) *Result {
	r := &Result{ID: id, At: message.InstantTime(said.At)}
	switch said.Word {
	case script.AwaitSuperseded:
		r.State, r.superseded, r.Err = StateDone, true, said.Text
	case script.StateDone:
		r.State, r.Value = StateDone, said.Text
	default:
		r.State, r.Err = stateOf(said.Word), said.Text
	}
	return r
}

func publish(s *shard.Queue, limit time.Duration, batch []Event) error {
	text, err := json.Marshal(batch)
	if err != nil {
		return err
	}
	return s.Publish(limit, text)
}

func (s *steerer) intercept(ctx context.Context, verb, by, what string) (*InterceptResult, error) {
	s.made()
	running := verb == "cancel"
	got, err := s.store.InterceptWith(ctx, &s.calls, by, what, running)
	if err != nil {
		return nil, s.failed(err, "%s %s %s", verb, by, what)
	}
	r := InterceptResult{Intercepted: got.Out(running), State: stateOf(got.State), ID: got.ID}
	if r.Intercepted {
		s.tell(InterceptedEvent, 1, r.ID)
	}
	return &r, nil
}

func (s *steerer) reschedule(ctx context.Context, by, what string, t time.Time) error {
	s.made()
	w, err := message.Scheduled(t)
	if err != nil {
		return s.failed(err, "reschedule %s", what)
	}
	do := script.SteerRequest{What: script.SteerAt, Us: w.Us, Only: by, Targets: []script.Spot{{Tag: what}}}
	done, err := s.store.SteerOne(ctx, &s.calls, do)
	if err != nil {
		return s.failed(err, "reschedule %s", what)
	}
	ids := []string{what}
	no := &StateError{ID: what, State: stateOf(done.State)}
	if by == "key" {
		ids, no.ID, no.Key = nil, "", what // with an id that is not known
	}
	switch {
	case done.Expired:
		return s.failed(fmt.Errorf("%w: its deadline or TTL is over by then; Anew of an ops.Queue lifts it", ErrExpired),
			"reschedule %s", what)
	case !done.Done:
		return s.failed(no, "reschedule")
	}
	s.tell(RescheduledEvent, 1, ids...)
	return nil
}
