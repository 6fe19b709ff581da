package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
)

// This file measures a contender on its stand.

// report adds a sample.
func (r *peersRun) report(s *stand, name string, k kind, f figures) {
	r.reports.Lock()
	defer r.reports.Unlock()
	row := r.res.row(name, k)
	row.Samples[s.name] = append(row.Samples[s.name], f)
}

// sides are what server and worker have used.
type sides struct{ server, worker time.Duration }

func (s *stand) cpu() (now sides, err error) {
	if now.server, err = cpuOf(s.pid()); err == nil {
		now.worker, err = cpuOf(s.workers[0].cmd.Process.Pid)
	}
	return now, err
}

// cost has the first worker carry out an order, and says what a message cost on both sides.
func (s *stand) cost(ctx context.Context, o order) (answer, figures, error) {
	before, err := s.cpu()
	if err != nil {
		return answer{}, nil, err
	}
	a, err := s.workers[0].do(ctx, o)
	if err != nil {
		return answer{}, nil, err
	}
	after, err := s.cpu()
	if err != nil {
		return answer{}, nil, err
	}
	each := func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(max(a.N, 1)) }
	return a, figures{serverCPU: each(after.server - before.server), clientCPU: each(after.worker - before.worker),
		rate: float64(a.N) / a.Seconds}, nil
}

// fill stores messages.
func (r *peersRun) fill(s *stand, n int, d due) error {
	_, err := s.workers[0].do(r.ctx, order{Do: "fill", N: n, Due: d})
	return err
}

// send measures single sends or batches, after as many that warm all up.
func (r *peersRun) send(s *stand, name string, callers int) error {
	o := order{Do: "send", Callers: callers, Seconds: 0.5, Due: dueHour}
	if r.quick {
		o.Seconds = 0.1
	}
	if _, err := s.workers[0].do(r.ctx, o); errors.Is(err, errors.ErrUnsupported) {
		return nil
	} else if err != nil {
		return err
	}
	o.Seconds *= 5
	_, f, err := s.cost(r.ctx, o)
	if err == nil {
		r.report(s, name, peerThroughput, f)
	}
	return err
}

// drain measures how messages that are due are handled.
func (r *peersRun) drain(s *stand, name string, n int) error {
	var f figures
	for _, n := range []int{n / 10, n} { // the first warms all up
		if err := r.fill(s, n, dueNow); err != nil {
			return err
		}
		var err error
		if f, err = r.drainAll(s, n, 0); err != nil {
			return err
		}
	}
	r.report(s, name, peerThroughput, f)
	return nil
}

// drainAll handles the n messages that are due, or will be soon, while others are pending.
func (r *peersRun) drainAll(s *stand, n, pending int) (figures, error) {
	a, f, err := s.cost(r.ctx, order{Do: "drain", N: n, Workers: peerWorkers, Patience: peerPatience})
	if err != nil {
		return nil, err
	}
	if a.N != n || a.Twice > 0 {
		return nil, fmt.Errorf("of %d messages %d came, %d of them more than once", n, a.N, a.Twice)
	}
	left, err := s.workers[0].do(r.ctx, order{Do: "left"})
	if err == nil && left.N != pending {
		err = fmt.Errorf("%d messages are left, want %d", left.N, pending)
	}
	return f, err
}

func (r *peersRun) lateness(s *stand) error {
	// The first is due later than any contender next looks for what will be due.
	o := order{Do: "late", N: r.size(4000), Workers: peerWorkers, Ahead: 10, Seconds: 20, Patience: peerPatience}
	if r.quick {
		o.Ahead, o.Seconds = 3, 2
	}
	if err := r.fill(s, 1000, dueNow); err != nil { // to warm all up
		return err
	}
	if _, err := r.drainAll(s, 1000, 0); err != nil {
		return err
	}
	a, err := s.workers[0].do(r.ctx, o)
	if err != nil {
		return err
	}
	if a.N == 0 || a.Twice > 0 {
		return fmt.Errorf("of %d messages %d came, %d of them more than once", o.N, a.N, a.Twice)
	}
	r.late[s.name] = append(r.late[s.name], a.Ms...)
	slices.Sort(a.Ms)
	first, _ := slices.BinarySearch(a.Ms, 0)
	r.report(s, "lateness", peerLateness, figures{
		lateP50: quantile(a.Ms, 0.5), lateP99: quantile(a.Ms, 0.99), lateMax: quantile(a.Ms, 1),
		early: float64(first), never: float64(o.N - a.N),
	})
	return nil
}

func (r *peersRun) idle(s *stand, t *turn) error {
	settle, over := 3*time.Second, idleOver
	if r.quick {
		settle, over = time.Second, 2*time.Second
	}
	if _, err := s.workers[0].do(r.ctx, order{Do: "begin", Workers: peerWorkers}); err != nil {
		return err
	}
	t.leave()
	link.Sleep(r.ctx, settle)
	var calls [2]float64
	var cpu [2]sides
	for i := range calls {
		var err error
		if calls[i], err = s.calls(r.ctx); err != nil {
			return err
		}
		if cpu[i], err = s.cpu(); err != nil {
			return err
		}
		if i == 0 {
			link.Sleep(r.ctx, over)
		}
	}
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / over.Seconds() }
	r.report(s, idleName, peerIdle, figures{
		commandsSecond: (calls[1] - calls[0]) / over.Seconds(), redisShare: share(cpu[1].server - cpu[0].server),
		clientShare: share(cpu[1].worker - cpu[0].worker),
	})
	return nil
}

// peerLevels are how many messages are pending while others are measured.
func (r *peersRun) peerLevels() []int {
	if r.quick {
		return []int{1000, 10_000}
	}
	return []int{1000, 10_000, 100_000, 1_000_000}
}

const peerBacklogMeasures = 3

// memoryLevel is the least that is pending when memory is measured: pages and hash tables are small beside it.
const memoryLevel = 10_000

// backlog measures sends and drains while ever more messages are pending, and what those take.
func (r *peersRun) backlog(s *stand) error {
	pending := 0
	for _, level := range r.peerLevels() {
		// What was handled before can take memory, too.
		before, err := s.memory(r.ctx)
		if err != nil {
			return err
		}
		if err := r.fill(s, level-pending, dueDay); err != nil {
			return err
		}
		after, err := s.memory(r.ctx)
		if err != nil {
			return err
		}
		if level > memoryLevel {
			r.report(s, backlogName("memory", level), peerBacklog,
				figures{bytesEach: (after - before) / float64(level-pending)})
		}
		pending = level
		for range peerBacklogMeasures {
			n := r.size(s.drained / 5)
			_, f, err := s.cost(r.ctx, order{Do: "send", Callers: senders, N: n, Due: dueSoon})
			if err != nil {
				return err
			}
			r.report(s, backlogName("send", level), peerBacklog, f)
			if f, err = r.drainAll(s, n, pending); err != nil {
				return err
			}
			r.report(s, backlogName("drain", level), peerBacklog, f)
		}
	}
	return nil
}
