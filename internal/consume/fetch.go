package consume

import (
	"errors"
	"io"
	"log/slog"
	"syscall"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/event"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file makes attempts at one fetch, and takes in what it brought.

const (
	smallReply = 64 << 10 // bytes that are asked for once a reply did not come through
	aloneTries = 2        // how often one message may fail to come through alone until it counts a loss
)

// A replyBudget decides how many bytes of messages each attempt at one fetch asks for. If a reply does not come through, because the line is
// slow or a limit of the server cuts it, the next attempt asks for less. Messages that do not fit go back to the queue. Of a message that
// does not come through alone a loss is counted in its record.
type replyBudget struct {
	bytes     int  // for the next attempt; 0: only list what the call holds, which shows whether anything comes through
	expected  int  // bytes of the one message that the next attempt brings; 0: not known
	lost      int  // replies; 0: none was lost; 1: one was cut; 2: bytes is down to a small reply, or to a list
	listed    bool // a list has come through
	lostAlone int  // replies of one message that did not come through after that
}

// failed notes why an attempt failed.
func (b *replyBudget) failed(err error) {
	if b.bytes == 0 || !replyLost(err) {
		return
	}
	if b.listed {
		b.lostAlone++
	}
	if b.lost++; b.lost == 1 && !link.TimedOut(err) { // the connection was cut, perhaps by chance
		return
	}
	b.lost = max(b.lost, 2)
	if b.listed || b.bytes <= smallReply {
		b.bytes, b.expected = 0, 0
	} else {
		b.bytes = min(b.bytes/2, smallReply)
	}
}

// answered notes an answer, and reports whether the fetch is done.
func (b *replyBudget) answered(got *script.FetchReply) bool {
	if len(got.Described) == 0 || len(got.Described) == 1 && b.lostAlone >= aloneTries {
		return true
	}
	b.listed, b.bytes, b.expected = true, 1, got.Described[0].Size // the first of those that do not fit comes alone
	return false
}

// replyLost reports whether the server was reached and its reply did not come through.
func replyLost(err error) bool {
	cut := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	return !link.NoEffect(err) && (cut || link.TimedOut(err))
}

// optionalAttempts is how many attempts are made at a call that need not succeed. One is too few, because the pool may hold dead
// connections.
const optionalAttempts = 3

// fetch makes attempts at one call until Redis answers. After a stop it gives up when redisCtx ends, because then the leases of what the call
// may have handed out are over. It gives up at once if the call cannot have handed out anything. sentAt is when the attempt that was
// answered had a connection. If c is not nil, the first attempt makes c right before the fetch.
func (p *poller) fetch(q script.FetchRequest, c *jointCall) (got script.FetchReply, sentAt time.Time, err error) {
	p.caller.Next()
	held := p.leases.held.totals()
	q.Settings, q.Limits = &p.settings.FetchSettings, p.settings.Limits
	q.Seed = p.settings.Drain.seed()
	b := replyBudget{bytes: p.replyBytes}
	if p.settings.MaxBytes > 0 {
		b.bytes = min(b.bytes, max(p.settings.MaxBytes-held.bytes, 1))
	}
	carriedOut := false // the server may have carried out an attempt
	leaving := q.Presence == script.PresenceLeaving
	var permit *script.WritePermit // of the last attempt
	for done := false; !done && err == nil; done = b.answered(&got) {
		err = p.lifecycle.retry("fetch", p.caller, func() (err error) {
			q.Bytes, q.Expected, q.Probe, q.Began = b.bytes, b.expected, b.bytes == 0, new(time.Time)
			if q.Apart = 0; b.lost == 0 && link.Linkable(p.store.Cli) { // another client might read from a replica
				q.Apart = p.yielding.apart()
			}
			permit = &script.WritePermit{Call: p.caller.N}
			p.caller.Permit = permit
			ctx := p.lifecycle.pollCtx
			if leaving {
				ctx = p.leaveCtx
			} else if carriedOut {
				ctx = p.lifecycle.redisCtx
			}
			if c != nil {
				got, err = p.jointly(ctx, c, q)
				c = nil
			} else {
				got, err = p.store.Fetch(ctx, p.caller, q)
			}
			if err != nil {
				b.failed(err)
				p.member.lapsed()
				return err
			}
			sentAt = *q.Began
			return nil
		}, func(n int, err error) bool {
			carriedOut = carriedOut || !permit.Revoke() && !link.Refusal(err)
			if p.gaveUp(n, err) {
				return false
			}
			return !p.lifecycle.stopping() || carriedOut && q.Want > 0 || leaving && n < optionalAttempts && p.leaveCtx.Err() == nil
		})
	}
	if p.replyBytes = min(2*p.replyBytes, script.MaxBatchBytes); b.lost > 0 {
		p.replyBytes = smallReply
	}
	return got, sentAt, err
}

// accept handles the answer to a fetch.
func (p *poller) accept(got *script.FetchReply, sentAt, answeredAt time.Time, alone bool) {
	p.report(got, answeredAt)
	for i, dead := range got.Dead {
		p.events.Tell(event.CodeFinalFailed, 1, dead.ID)
		p.notices.put(noticeOfPoison(got, i))
	}
	if len(got.Described) > 0 {
		p.giveUp(got, sentAt, answeredAt, p.agreed.MaxLosses)
	}
	if len(got.Tags) == 0 {
		return
	}
	ds := decode(p.Consumer, got, sentAt, answeredAt)
	ds[0].lease.before, ds[0].alone = p.state.before, alone
	p.leases.add(ds...)
	if p.events.On() {
		ids := idsOf(ds)
		p.events.Tell(event.CodeReady, len(ids), ids...)
		p.events.Tell(event.CodeDelivered, len(ids), ids...)
	}
	brought := len(ds)
	ds = p.setAside(ds, got.Now, answeredAt)
	p.member.setAside(brought - len(ds))
	p.member.put(ds)
}

// giveUp settles what a lost reply had, which does not come through. All of it is held before the first settlement, because a renewal
// lets go of what this consumer does not hold.
func (c *Consumer) giveUp(got *script.FetchReply, sentAt, answeredAt time.Time, maxLosses int) {
	unreceived := &lease{Lease: got.Lease}
	unreceived.began.Set(sentAt)
	var all []outcome
	var ds []*delivery
	for _, h := range got.Described {
		o := notReceived(c, unreceived, h, maxLosses, answeredAt)
		c.settings.Log.Error("delayqueue: a message does not come through: the line is too slow for it within a lease, "+
			"or a limit of the server's cuts it",
			o.d.attrs(), slog.Int("bytes", h.Size), slog.Int("losses", o.losses))
		all, ds = append(all, o), append(ds, o.d)
	}
	c.leases.add(ds...)
	for _, o := range all {
		c.settler.settle(o)
	}
}

// setAside settles the deliveries that no handler should see, and returns the others.
func (p *poller) setAside(ds []*delivery, clock message.ServerTime, answeredAt time.Time) []*delivery {
	fit, newer := ds[:0], 0
	for _, d := range ds {
		o, ok := unfit(d, clock)
		if !ok {
			fit = append(fit, d)
			continue
		}
		if o.kind == script.OutcomeRetry {
			newer++
		} else if d.broken != nil {
			p.settings.Log.Error("delayqueue: a broken message goes to garbage: another program writes to this queue",
				d.attrs(), slog.Any("error", d.broken))
		}
		p.settler.settle(o)
	}
	if n := p.newer.Add(newer, answeredAt); n > 0 {
		p.settings.Log.Warn("delayqueue: set aside messages that only a newer version of this library can read", slog.Int("times", n))
	}
	return fit
}

// report logs what a fetch says of the queue, and tells event listeners.
func (p *poller) report(got *script.FetchReply, answeredAt time.Time) {
	p.remember(got)
	if n := p.lost.Add(got.Lost, answeredAt); n > 0 {
		p.settings.Log.Warn("delayqueue: leases ran out: their consumers died or were cut off", slog.Int("messages", n))
	}
	if got.First == 1 && p.seenQueue {
		p.settings.Log.Error("delayqueue: keys of this queue have vanished: a flush, an eviction policy other than noeviction, " +
			"or a failover that lost them")
		p.events.Tell(event.CodeVanished, 1)
	}
	p.seenQueue = true
	p.events.Tell(event.CodeVanished, got.Dropped)
	if got.Agreed != p.agreed && got.Agreed != p.settings.FetchSettings {
		p.settings.Log.Warn("delayqueue: other consumers of this queue have other settings: the most that one of them asks for holds for all",
			slog.Group("this", askedAttrs(p.settings.FetchSettings)...), slog.Group("all", askedAttrs(got.Agreed)...))
	}
	p.agreed = got.Agreed
	p.reportLimits(got.Limits)
	if n := p.dropped.Add(got.Dropped, answeredAt); n > 0 {
		p.settings.Log.Error("delayqueue: dropped tags without a message: another program, or an eviction policy, deletes from this queue",
			slog.Int("tags", n))
	}
	p.settings.logOverflow(got.Overflow)
	p.events.Tell(event.CodeLost, got.Lost)
	if got.Replaced > 0 {
		p.settings.Log.Info("delayqueue: messages end whose deliveries were lost: while they were handled other sends took their keys",
			slog.Int("messages", got.Replaced))
		p.events.Tell(event.CodeSuperseded, got.Replaced)
	}
}

func askedAttrs(f script.FetchSettings) []any {
	return []any{slog.Duration("lease", f.Lease), slog.Int("max_losses", f.MaxLosses),
		slog.Duration("garbage_age", f.GarbageAge), slog.Int("garbage_max", f.GarbageMax), slog.Int("done_max", f.DoneMax)}
}
