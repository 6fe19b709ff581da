package delayqueue

import (
	"errors"
	"io"
	"log/slog"
	"syscall"
	"time"
)

// This file brings one fetch through, and takes in what it brought.

const (
	smallReply = 64 << 10 // bytes that are asked for once a reply did not come through
	aloneTries = 2        // how often one message may fail to come through alone until that is a loss
)

// A replyBudget decides how many bytes of messages each attempt of one fetch asks for. If a reply does not come through,
// because the line is slow or a limit of the server cuts it, the next attempt asks for less, and messages that do not
// fit go back to the queue. A message that does not come through alone counts as lost.
type replyBudget struct {
	bytes     int  // for the next attempt; 0: only list what the call holds, which shows whether anything comes through
	expected  int  // bytes of the one message that it brings; 0: not known
	lost      int  // how far bytes is down: 0 nothing lost; 1 one reply was cut; 2 a small reply, or only a list
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
	if b.lost++; b.lost == 1 && !timedOut(err) { // the connection was cut, and perhaps by chance
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
func (b *replyBudget) answered(got *fetchReply) bool {
	if len(got.held) == 0 || len(got.held) == 1 && b.lostAlone >= aloneTries {
		return true
	}
	b.listed, b.bytes, b.expected = true, 1, got.held[0].size // the first of those that do not fit comes alone
	return false
}

// replyLost reports whether the server was reached and its reply did not come through.
func replyLost(err error) bool {
	cut := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	return !noEffect(err) && (cut || timedOut(err))
}

// optionalAttempts is how many attempts are made at a call that need not succeed. One is too few, for the pool may hold
// dead connections.
const optionalAttempts = 3

// fetch makes attempts at one call until Redis answers. After a stop it gives up when redisCtx ends, for what the call
// may have handed out is lost by then, and sooner if the call cannot have handed out anything. sentAt is when the
// attempt that was answered had a connection.
func (p *poller) fetch(q fetchRequest) (got fetchReply, sentAt time.Time, err error) {
	p.caller.next()
	held := p.leases.held.totals()
	q.settings, q.limits, q.holdsLastChance, q.seed = &p.settings.fetchSettings, p.settings.limits,
		held.lastChances > 0, p.settings.drain.seed()
	b := replyBudget{bytes: p.replyBytes}
	if p.settings.maxBytes > 0 {
		b.bytes = min(b.bytes, max(p.settings.maxBytes-held.bytes, 1))
	}
	carriedOut, leaving := false, q.presence == presenceLeaving // an attempt was, perhaps
	var permit *writePermit                                     // of the last attempt
	for done := false; !done && err == nil; done = b.answered(&got) {
		err = p.lifecycle.retry("fetch", p.caller, func() (err error) {
			q.bytes, q.expected, q.probe, q.began = b.bytes, b.expected, b.bytes == 0, new(time.Time)
			permit = &writePermit{call: p.caller.n}
			p.caller.permit = permit
			ctx := p.lifecycle.pollCtx
			if leaving {
				ctx = p.leaveCtx
			} else if carriedOut {
				ctx = p.lifecycle.redisCtx
			}
			if c := q.behind; c != nil {
				q.behind = nil
				got, err = p.jointly(ctx, c, q)
			} else {
				got, err = p.store.fetch(ctx, p.caller, q)
			}
			if err != nil {
				b.failed(err)
				p.member.lapsed()
				return err
			}
			sentAt = *q.began
			return nil
		}, func(n int, err error) bool {
			carriedOut = carriedOut || !permit.revoke() && !refusal(err)
			if p.gaveUp(n, err) {
				return false
			}
			return !p.lifecycle.stopping() || carriedOut && q.want > 0 || leaving && n < optionalAttempts && p.leaveCtx.Err() == nil
		})
	}
	if p.replyBytes = min(2*p.replyBytes, maxBatchBytes); b.lost > 0 {
		p.replyBytes = smallReply
	}
	return got, sentAt, err
}

// accept handles the answer to a fetch.
func (p *poller) accept(got *fetchReply, sentAt, answeredAt time.Time) {
	p.report(got, answeredAt)
	for i, dead := range got.dead {
		p.events.tell(FinalFailedEvent, 1, dead.id)
		p.notices.put(noticeOfPoison(dead, got.parts[-1-i]))
	}
	for _, h := range got.held {
		o := notReceived(p.settler, h, p.agreed.maxLosses, answeredAt)
		p.settings.log.Error("delayqueue: a message does not come through: the line is too slow for it within a lease, "+
			"or a limit of the server's cuts it",
			o.d.attrs(), slog.Int("bytes", h.size), slog.Int("losses", o.losses))
		p.leases.add(o.d)
		p.settler.settle(o)
	}
	if len(got.tags) == 0 {
		return
	}
	ds := decode(p.settler, got, p.agreed.maxLosses, sentAt, answeredAt)
	p.leases.add(ds...)
	if p.events.on() {
		ids := idsOf(ds)
		p.events.tell(ReadyEvent, len(ids), ids...)
		p.events.tell(DeliveredEvent, len(ids), ids...)
	}
	brought := len(ds)
	ds = p.setAside(ds, got.now, answeredAt)
	p.member.setAside(brought - len(ds))
	p.member.put(ds)
}

// setAside settles the deliveries that no handler should see, and returns the others.
func (p *poller) setAside(ds []*delivery, clock serverTime, answeredAt time.Time) []*delivery {
	fit, newer := ds[:0], 0
	for _, d := range ds {
		o, ok := unfit(d, clock)
		if !ok {
			fit = append(fit, d)
			continue
		}
		if o.kind == outcomeRetry {
			newer++
		} else if d.broken != nil {
			p.settings.log.Error("delayqueue: a broken message goes to garbage: another program writes to this queue",
				d.attrs(), slog.Any("error", d.broken))
		}
		p.settler.settle(o)
	}
	if n := p.newer.add(newer, answeredAt); n > 0 {
		p.settings.log.Warn("delayqueue: set aside messages that only a newer version of this library can read", slog.Int("times", n))
	}
	return fit
}

// report logs, and tells event listeners, what a fetch says of the queue.
func (p *poller) report(got *fetchReply, answeredAt time.Time) {
	if got.lost > 0 {
		p.settings.log.Warn("delayqueue: leases ran out: their consumers died or were cut off", slog.Int("messages", got.lost),
			slog.Int("poison", len(got.dead)))
	}
	if got.first == 1 && p.seenQueue {
		p.settings.log.Error("delayqueue: keys of this queue have vanished: a flush, an eviction policy other than noeviction, " +
			"or a failover that lost them")
		p.events.tell(VanishedEvent, 1)
	}
	p.seenQueue = true
	p.events.tell(VanishedEvent, got.dropped)
	if got.agreed != p.agreed && got.agreed != p.settings.fetchSettings {
		p.settings.log.Warn("delayqueue: other consumers of this queue have other settings: the most that one of them asks for holds for all",
			slog.Group("this", p.settings.fetchSettings.attrs()...), slog.Group("all", got.agreed.attrs()...))
	}
	p.agreed = got.agreed
	p.reportLimits(got.limits)
	if n := p.dropped.add(got.dropped, answeredAt); n > 0 {
		p.settings.log.Error("delayqueue: dropped tags without a message: another program, or an eviction policy, deletes from this queue",
			slog.Int("tags", n))
	}
	p.settings.logOverflow(got.overflow)
	p.events.tell(LostEvent, got.lost)
	if got.replaced > 0 {
		p.settings.log.Info("delayqueue: messages end whose deliveries were lost: while they were handled other sends took their keys",
			slog.Int("messages", got.replaced))
		p.events.tell(SupersededEvent, got.replaced)
	}
}

func (f fetchSettings) attrs() []any {
	return []any{slog.Duration("lease", f.lease), slog.Int("max_losses", f.maxLosses),
		slog.Duration("garbage_age", f.garbageAge), slog.Int("garbage_max", f.garbageMax), slog.Int("done_max", f.doneMax)}
}

// A minuteCount adds up what is logged once a minute at most.
type minuteCount struct {
	n      int
	logged time.Time
}

// add returns how many to log now, 0 if it is too early for that.
func (c *minuteCount) add(n int, now time.Time) int {
	if c.n += n; c.n <= 0 || now.Sub(c.logged) < time.Minute {
		return 0
	}
	n, c.n, c.logged = c.n, 0, now
	return n
}
