package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// What is done to all messages that match runs in the background of the process that its form was sent to. All that is known of such a
// job is in its entry of the journal, where every process reads how it goes on, stops it, and goes on with it.

const maxJobs = 4 // that run in one process

var (
	errJobs    = &httpError{http.StatusServiceUnavailable, "Four jobs run here already, and no process runs more: wait until one has ended, or stop one"}
	errUnseen  = &httpError{http.StatusConflict, "It was stopped: the journal cannot be written, so nobody could see or stop it"}
	errBegun   = &httpError{http.StatusConflict, "What was counted is an hour old, or somebody has begun it: look into the journal, or count again"}
	errGoesOn  = &httpError{http.StatusConflict, "Somebody goes on with this job: look at it again"}
	errNotDone = &httpError{http.StatusGatewayTimeout, "It was stopped, for Redis does not answer in time: the journal says whether it has begun"}
)

// A jobCall is BulkCommit or BulkContinue, of something.
type jobCall func(ctx context.Context, progress func(*delayqueue.BulkResult) bool) (*delayqueue.BulkResult, error)

// A firstStep is how a job began.
type firstStep struct {
	result *delayqueue.BulkResult
	err    error
}

// startJob begins a job, which ends with the Handler at the latest, and returns what its first step came to.
func (h *Handler) startJob(queue string, call jobCall) (*delayqueue.BulkResult, error) {
	if !h.jobs.enter() {
		if h.done.Err() != nil {
			return nil, errClosed
		}
		return nil, errJobs
	}
	ctx, cancel := context.WithCancel(h.done)
	begun := make(chan firstStep, 1)
	go func() {
		defer h.jobs.leave()
		defer cancel()
		h.runJob(ctx, queue, call, begun)
	}()
	late := time.NewTimer(h.bounds.begin)
	defer late.Stop()
	select {
	case first := <-begun:
		return first.result, jobTrouble(first.err)
	case <-late.C:
		cancel() // so that it does not go on later
		return nil, errNotDone
	}
}

// runJob runs it to its end, and says how it began.
func (h *Handler) runJob(ctx context.Context, queue string, call jobCall, begun chan<- firstStep) {
	var once sync.Once
	say := func(r *delayqueue.BulkResult, err error) { once.Do(func() { begun <- firstStep{r, err} }) }
	defer func() {
		if bad := recover(); bad != nil {
			h.log.Error("delayqueue: a job panicked", "queue", queue, "panic", fmt.Sprint(bad), "stack", string(debug.Stack()))
			say(nil, errPanic)
		}
	}()
	result, err := call(ctx, func(r *delayqueue.BulkResult) bool {
		if r.Entry == "" {
			return false
		}
		say(r, nil)
		return ctx.Err() == nil
	})
	if err == nil && result.Entry == "" && result.Next != "" {
		err = errUnseen
	}
	say(result, err)
	if err != nil && ctx.Err() == nil && !errors.Is(err, delayqueue.ErrBulkStopped) {
		h.log.Warn("delayqueue: a job was cut off", "queue", queue, "error", err)
	}
}

// jobTrouble is why a job has not begun, in words.
func jobTrouble(err error) error {
	switch {
	case errors.Is(err, delayqueue.ErrPlanOver):
		return errBegun
	case errors.Is(err, delayqueue.ErrBadCursor):
		return errGoesOn
	}
	return err
}
