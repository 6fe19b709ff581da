package web

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// What a plan and what is left of a job needs, each thing that can be done: all those rights, and no others.
func TestRightsOfTasks(t *testing.T) {
	const pending, ready, unack = delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateUnack
	const retry, garbage, done = delayqueue.StateRetry, delayqueue.StateGarbage, delayqueue.StateDone
	every := []Action{Pause, RunNow, Reschedule, Requeue, Cancel, Delete, SetLimits}
	for _, c := range []struct {
		action string
		by     time.Duration
		states []delayqueue.State
		needs  []Action // none: nobody may
	}{
		{"run now", 0, []delayqueue.State{pending, retry}, []Action{RunNow}},
		{"run now", 0, []delayqueue.State{pending, ready}, nil},
		{"reschedule by", time.Hour, []delayqueue.State{pending, ready, retry}, []Action{Reschedule}},
		{"reschedule by", -time.Hour, []delayqueue.State{pending}, []Action{Reschedule, RunNow}},
		{"reschedule", 0, []delayqueue.State{pending, ready}, []Action{Reschedule, RunNow}},
		{"reschedule by", time.Hour, []delayqueue.State{garbage}, nil},
		{"requeue", 0, []delayqueue.State{garbage}, []Action{Requeue}},
		{"requeue", 0, []delayqueue.State{garbage, done}, nil},
		{"delete", 0, []delayqueue.State{unack}, []Action{Cancel}},
		{"delete", 0, []delayqueue.State{pending, ready, retry, garbage, done}, []Action{Delete}},
		{"delete", 0, []delayqueue.State{pending, unack}, []Action{Cancel, Delete}},
		{"delete", 0, []delayqueue.State{unack, pending}, []Action{Cancel, Delete}},
		{"delete", 0, nil, nil},
		{"cancel", 0, []delayqueue.State{unack}, nil},
		{"", 0, []delayqueue.State{pending}, nil},
	} {
		task := &ops.BulkTask{Action: c.action, By: c.by, States: c.states}
		with := func(rights []Action) (*verb, error) {
			h := &Handler{cfg: Config{Authorize: func(_ *http.Request, do Action, _ string) (string, error) {
				if slices.Contains(rights, do) {
					return "ann", nil
				}
				return "", errors.New("not you")
			}}}
			return (&request{h: h, Queue: "orders"}).taskVerb(task)
		}
		v, err := with(every)
		if len(c.needs) == 0 && !errors.Is(err, errWhat) || len(c.needs) > 0 && (err != nil || !slices.Contains(v.Tasks, c.action)) {
			t.Errorf("%+v: %v, %v", c, v, err)
		}
		if _, err := with(c.needs); len(c.needs) > 0 && err != nil {
			t.Errorf("%+v: with all that it needs: %v", c, err)
		}
		for _, lacks := range c.needs {
			if _, err := with(slices.DeleteFunc(slices.Clone(every), func(a Action) bool { return a == lacks })); err == nil {
				t.Errorf("%+v: allowed without %s", c, lacks)
			}
		}
	}
}

// Each thing that a call for many does is of a verb, by the name that it has in a task and in the journal.
func TestVerbsOfTasks(t *testing.T) {
	for _, v := range verbs {
		for _, state := range v.States {
			for _, action := range v.Tasks {
				if got := verbOf(action, state); got == nil || got.Name != v.Name {
					t.Errorf("to %s what is %s: %+v, not to %s it", action, state, got, v.Name)
				}
			}
		}
	}
	for _, act := range []ops.Act{ops.ActRunNow, ops.ActReschedule, ops.ActRequeue, ops.ActDelete} {
		if !slices.ContainsFunc(verbs, func(v verb) bool { return slices.Contains(v.Tasks, string(act)) }) {
			t.Errorf("no verb is %s", act)
		}
	}
}

// A job of which the journal does not hold what is left is stopped by who may do that to messages in some state.
func TestStopWithoutNext(t *testing.T) {
	var right Action
	f := newFixture(t, Config{Authorize: func(_ *http.Request, do Action, _ string) (string, error) {
		if do == Look || do == right {
			return "ann", nil
		}
		return "", errors.New("not you")
	}})
	f.send("orders", "x")
	id := 1_700_000_000_000_000
	for act, want := range map[ops.Act][]Action{
		ops.ActDelete: {Cancel, Delete}, ops.ActRequeue: {Requeue}, ops.ActRunNow: {RunNow},
		ops.ActReschedule: {Reschedule}, "unheard of": nil,
	} {
		for _, right = range []Action{Pause, RunNow, Reschedule, Requeue, Cancel, Delete, SetLimits} {
			id++
			entry := fmt.Sprintf(`0123456789abcdef runs %d {"act":%q,"n":1,"bulk":{"is":"running","of":2,"looked":1}}`, time.Now().UnixMicro(), act)
			ok(t, f.cli.ZAdd(f.Context(), "{dq:orders}:journal", redis.Z{Score: float64(id), Member: entry}).Err())
			got := f.onJob(jobLink("orders", fmt.Sprintf("%d-0123456789abcdef", id)), "stop")
			if may := got.code == http.StatusSeeOther; may != slices.Contains(want, right) {
				t.Errorf("%s with the right to %s: %d %s", act, right, got.code, got.body)
			}
		}
	}
}
