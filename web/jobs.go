package web

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

// What is done to all messages that match runs in the background of the process that its form was sent to. All that
// is known of such a job is in its entry of the journal, where every process reads how it goes on, and stops it.

const maxJobs = 4 // that run in one process

var (
	errJobs = &httpError{http.StatusServiceUnavailable,
		"Four jobs run here already, and no process runs more: wait until one has ended, or stop one"}
	errUnseen = &httpError{http.StatusConflict,
		"It was stopped: the journal cannot be written, so nobody could see or stop it"}
	errNotDone = &httpError{http.StatusGatewayTimeout,
		"It was stopped, because Redis does not answer in time: the journal says whether it has begun"}
)

// A jobCall is a call for many.
type jobCall func(ctx context.Context, progress func(*ops.BulkResult) bool) (*ops.BulkResult, error)

// A firstStep is how a job began.
type firstStep struct {
	result *ops.BulkResult
	err    error
}

// startJob begins a job, which ends with the Handler at the latest, and returns what its first step came to.
func (h *Handler) startJob(queue string, call jobCall) (*ops.BulkResult, error) {
	if err := h.jobs.enter(""); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(h.done)
	begun := make(chan firstStep, 1)
	go func() {
		defer h.jobs.leave("")
		defer cancel()
		h.runJob(ctx, queue, call, begun)
	}()
	late := time.NewTimer(h.bounds.begin)
	defer late.Stop()
	select {
	case first := <-begun:
		if errors.Is(first.err, delayqueue.ErrMissingShards) && first.result.Entry != "" { // its entry says so
			first.err = nil
		}
		return first.result, first.err
	case <-late.C:
		cancel() // so that it does not go on later
		return nil, errNotDone
	}
}

// runJob runs it to its end, and says how it began.
func (h *Handler) runJob(ctx context.Context, queue string, call jobCall, begun chan<- firstStep) {
	var once sync.Once
	say := func(r *ops.BulkResult, err error) { once.Do(func() { begun <- firstStep{r, err} }) }
	defer func() {
		if bad := recover(); bad != nil {
			h.panicked(bad, "job of queue", queue)
			say(nil, errPanic)
		}
	}()
	result, err := call(ctx, func(r *ops.BulkResult) bool {
		if r.Entry == "" {
			return false
		}
		say(r, nil)
		return ctx.Err() == nil
	})
	if err == nil && result.Entry == "" && !result.Finished {
		err = errUnseen
	}
	say(result, err)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ops.ErrBulkStopped) {
		h.log.Warn("delayqueue: a job was cut off", "queue", queue, "error", err)
	}
}
