package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file refills places (WithQueueConcurrency). While what is due waits for a place, the fetch for the places that a
// settlement frees goes out right behind that, in the same round trip. The poller makes both calls then, for the settler.
// Each of them has its own answer, and repeats its own call by itself.

// A jointCall is a settlement that the poller is asked to make.
type jointCall struct {
	batch       []outcome
	settlements []settlement
	caller      *caller
	end         chan jointEnd // with room for one
}

// A jointEnd is what became of it.
type jointEnd struct {
	reply settleReply
	err   error
	left  bool // it was not made
}

const (
	// pollerPatience is how long a settlement waits for the poller, which may be making a call. By itself it would set the alarm, and
	// the poller would make its next call for that, and so on.
	pollerPatience = 50 * time.Millisecond
	// workerPatience is how long the poller waits for the workers whose outcomes are settled: they are about to be free. Without
	// them it would fetch too little, and once more at once.
	workerPatience = 5 * time.Millisecond
)

// jointly has the poller make a settlement. made says whether it did.
func (s *settler) jointly(batch []outcome, settlements []settlement) (end jointEnd, made bool) {
	if !s.refills.Load() {
		return end, false
	}
	c := &jointCall{batch, settlements, s.caller, make(chan jointEnd, 1)}
	select {
	case s.joint <- c:
		end = <-c.end
		return end, !end.left
	case <-time.After(pollerPatience):
		return end, false
	}
}

// refill makes a joint call, if a worker is free for what that may fetch.
func (p *poller) refill(c *jointCall) {
	patience := time.After(workerPatience)
	for waits := true; waits && p.leases.held.totals().deliveries-p.member.unhandled() < len(c.batch); {
		select {
		case <-p.freed:
		case <-patience:
			waits = false
		}
	}
	if p.member.room(p.limit(), true, 0) == 0 || p.lifecycle.stopping() {
		c.end <- jointEnd{left: true}
		return
	}
	p.pollBehind(c, false)
	select {
	case c.end <- jointEnd{left: true}: // if no attempt was made; else nobody reads it
	default:
	}
}

// jointly makes one attempt at a settlement and the fetch behind it.
func (p *poller) jointly(ctx context.Context, c *jointCall, q fetchRequest) (got fetchReply, err error) {
	end, got, err := p.store.settleAndFetch(ctx, c, p.caller, q)
	if end.err == nil {
		p.leases.remove(mapped(c.batch, func(o *outcome) *delivery { return o.d })...) // before what comes is counted
	}
	if err == nil {
		p.settler.refills.Store(got.limits.full) // before the settler has its next batch
	}
	c.end <- end
	return got, err
}

// settleAndFetch makes one attempt at both calls, in this order and with one round trip. After an error without an answer each of
// them may have been carried out or not.
func (s *store) settleAndFetch(ctx context.Context, c *jointCall, fetcher *caller, q fetchRequest) (
	end jointEnd, got fetchReply, err error) {
	settle, fetch := newSettleCall(c.caller, c.settlements, "+"), q.args(fetcher)
	var first, second *redis.StringSliceCmd
	err = s.attempt(ctx, effort{bytes: sizeOf(settle.args) + sizeOf(fetch), call: func(ctx context.Context, cli redis.UniversalClient) error {
		*q.began = time.Now()
		calls := func(name string, settleBody, fetchBody string) error {
			first = redis.NewStringSliceCmd(ctx, settleScript.command(name, settleBody, s.keys, settle.args)...)
			second = redis.NewStringSliceCmd(ctx, fetchScript.command(name, fetchBody, s.keys, fetch)...)
			pipe := cli.Pipeline()
			if err := errors.Join(pipe.Process(ctx, first), pipe.Process(ctx, second)); err != nil {
				return err
			}
			_, _ = pipe.Exec(ctx) // each command has its error
			return cmp.Or(first.Err(), second.Err())
		}
		large := sizeOf(settle.args) >= attemptBytesPerSecond // after NOSCRIPT all of it would be written again
		err := error(nil)
		if !large {
			err = calls("evalsha", settleScript.sha, fetchScript.sha)
		}
		if large || says(err, "NOSCRIPT") {
			err = calls("eval", settleScript.text, fetchScript.text)
		}
		if answerOf(err) != "" && (first.Err() == nil || second.Err() == nil) {
			return nil // it is of one of them alone
		}
		return err
	}})
	if err != nil { // an attempt that is not waited for any longer may still set first and second
		return jointEnd{err: err}, got, err
	}
	if err := first.Err(); err != nil {
		end.err = s.explain(err)
	} else {
		end.reply, end.err = settle.read(&reply{rest: first.Val()})
	}
	if err := second.Err(); err != nil {
		return end, got, s.explain(err)
	}
	got, err = (&reply{rest: second.Val()}).fetched()
	return end, got, err
}
