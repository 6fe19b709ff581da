package consume

import (
	"cmp"
	"context"
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

// If so many messages come from pending, and the server is nearer than nearServer, their envelopes are read by a call
// of their own. That costs the server an eighth less for each message, and a round trip.
const (
	readApart  = 128
	nearServer = time.Millisecond
)

// smallReply is how many bytes a fetch asks for once a reply did not come through.
const smallReply = script.MaxBatchBytes / 16

// replyBytes is how many bytes of messages the next attempt at a fetch asks for, after so many replies did not come
// through because the line is slow or a limit of the server cuts them: all, then few, then one message, twice.
// Messages that do not fit go back to the queue, and nothing is counted. 0: that one message, if it is large, counts
// a loss. The answer to that attempt comes through.
func replyBytes(all, lost int) int {
	switch lost {
	case 0:
		return all
	case 1:
		return min(all, smallReply)
	case 2, 3:
		return 1
	}
	return 0
}

// replyLost reports whether the server was reached and its reply did not come through.
func replyLost(err error) bool {
	cut := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	return !link.NoEffect(err) && (cut || link.TimedOut(err))
}

// optionalAttempts is how many attempts are made at a call that need not succeed. One is too few, because the pool
// may hold dead connections.
const optionalAttempts = 3

// fetch makes attempts at one call until Redis answers. ctx bounds them, but once a poll may have been carried out,
// fetch goes on until redisCtx ends, because then the leases of what the call may have handed out are over. After a
// stop it gives up at once if the call cannot have handed out anything. sentAt is when the attempt that was answered
// had a connection.
func (p *poller) fetch(ctx context.Context,
	q script.FetchRequest) (got script.FetchReply, sentAt time.Time, err error) {
	p.caller.Next()
	held := p.leases.held.totals()
	q.Settings, q.Limits = &p.settings.FetchSettings, p.settings.Limits
	q.Seed = p.settings.seed
	all, lost := p.replyBytes, 0
	if p.settings.MaxBytes > 0 {
		all = min(all, max(p.settings.MaxBytes-held.bytes, 1))
	}
	carriedOut := false // the server may have carried out an attempt
	leaving := q.Presence == script.PresenceLeaving
	var permit *script.WritePermit // of the last attempt
	err = p.lifecycle.retry("fetch", p.caller, func() (err error) {
		q.Bytes, q.Began = replyBytes(all, lost), new(time.Time)
		q.Lose, q.Expected = q.Bytes == 0, min(q.Bytes, q.Want*p.big)
		if q.Bytes == 1 { // one message, of any size
			q.Expected = cmp.Or(p.big, script.MaxBatchBytes<<lost)
		}
		if q.Apart = 0; lost == 0 && p.nearest < nearServer &&
			p.store.Link != nil { // another client might read from a replica
			q.Apart = readApart
		}
		permit = &script.WritePermit{Call: p.caller.N}
		p.caller.Permit = permit
		if carriedOut && !leaving {
			ctx = p.lifecycle.redisCtx
		}
		if got, err = p.store.Fetch(ctx, p.caller, q); err != nil {
			if replyLost(err) {
				lost++
			}
			p.member.withdraw()
			return err
		}
		sentAt = *q.Began
		return nil
	}, func(n int, err error) bool {
		carriedOut = carriedOut || !permit.Revoke() && !link.Refusal(err)
		if p.gaveUp(n, err) {
			return false
		}
		return !p.lifecycle.stopping() || carriedOut && q.Want > 0 || leaving && n < optionalAttempts && ctx.Err() == nil
	})
	if p.replyBytes = min(2*p.replyBytes, script.MaxBatchBytes); lost > 0 {
		p.replyBytes = smallReply
	}
	if err == nil {
		if p.big = got.Big; q.Lose && got.Lost > 0 {
			p.settings.Log.Error(
				"delayqueue: a message does not come through: the line is too slow for it, or a limit of the server's cuts it. " +
					"It counts a loss, with this as its error")
		}
	}
	return got, sentAt, err
}

// accept handles the answer to a fetch.
func (p *poller) accept(got *script.FetchReply, sentAt, answeredAt time.Time) {
	p.report(got, answeredAt)
	if len(got.Tags) == 0 {
		return
	}
	ds := decode(p.consumer, got, sentAt, answeredAt)
	p.leases.add(ds...)
	if p.events.On() {
		ids := idsOf(ds)
		p.events.Tell(event.CodeReady, len(ids), ids...)
		p.events.Tell(event.CodeDelivered, len(ids), ids...)
	}
	fit := p.setAside(ds, got.Now, answeredAt)
	p.member.put(fit, len(ds)-len(fit))
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
		p.settings.Log.Warn("delayqueue: set aside messages that only a newer version of this library can read",
			slog.Int("times", n))
	}
	return fit
}

// report logs what a fetch says of the queue, and tells event listeners.
func (p *poller) report(got *script.FetchReply, answeredAt time.Time) {
	before := p.past.last
	p.compareTotals(got)
	here := before.stored - before.acked // at most
	gone := script.Loss{From: before.at, At: got.Now, Messages: before.stored - got.Totals.Stored, All: true}
	if here > 0 { // else it began with messages that nobody counted
		gone.Messages = min(gone.Messages, here)
	}
	if got.First == 1 && before.at != 0 {
		p.settings.Log.Error(
			"delayqueue: keys of this queue have vanished: a flush, an eviction policy other than noeviction, " +
				"or a failover that lost them")
		p.events.Tell(event.CodeVanished, 1)
		gone.Messages = here
	}
	p.consumer.losses.note(gone)
	p.events.Tell(event.CodeVanished, got.Dropped)
	p.lease = got.Agreed
	p.reportLimits(got.Limits)
	if n := p.dropped.Add(got.Dropped, answeredAt); n > 0 {
		p.settings.Log.Error(
			"delayqueue: dropped tags without a message: another program, or an eviction policy, deletes from this queue",
			slog.Int("tags", n))
	}
	p.consumer.losses.note(script.Loss{From: got.Now, At: got.Now, Messages: int64(got.Dropped)})
}

// tick does what is to be done at intervals for all consumers of the queue, because a fetch has asked this one to do
// it. If that fails, a later fetch asks again.
func (p *poller) tick() {
	got, err := p.store.Tick(p.lifecycle.pollCtx, p.caller, script.TickRequest{Again: p.ticked, Seed: p.settings.seed,
		Bytes: p.replyBytes, Settings: &p.settings.FetchSettings})
	if err != nil {
		if link.Transient(err) || p.lifecycle.stopping() {
			return // of an outage the next fetch tells
		}
		p.tickAgain = time.Now().Add(lookInterval)
		if p.settings.Drains { // it does not know what dead consumers held
			p.drainErr = err
			p.lifecycle.stop()
		}
		if n := p.unticked.Add(1, time.Now()); n > 0 {
			p.settings.Log.Error("delayqueue: a tick failed: what dead consumers held and what is too old stays where it is",
				slog.Int("times", n), slog.Any("error", err))
		}
		return
	}
	p.ticked = true
	if got.More || got.Lost > 0 {
		p.state.moreDue = true // the next fetch sets the alarm, or asks for another tick
	}
	if n := p.lost.Add(got.Lost, time.Now()); n > 0 {
		p.settings.Log.Warn("delayqueue: leases ran out: their consumers died or were cut off", slog.Int("messages", n))
	}
	p.settings.logOverflow(got.Overflow)
	p.events.Tell(event.CodeLost, got.Lost)
	if got.Replaced > 0 {
		p.settings.Log.Info(
			"delayqueue: messages end whose deliveries were lost: while they were handled other sends took their keys",
			slog.Int("messages", got.Replaced))
		p.events.Tell(event.CodeSuperseded, got.Replaced)
	}
	for i, dead := range got.Dead {
		p.events.Tell(event.CodeFinalFailed, 1, dead.ID)
		p.notices.put(noticeOfPoison(&got, i))
	}
}

// reportLimits logs a change of the limits in force, if they differ from the limits that this consumer asks for.
func (p *poller) reportLimits(now script.AgreedLimits) {
	before := p.limits
	if p.limits = now; now.RateLimits == before.RateLimits && now.BySet == before.BySet {
		return
	}
	asked, all := slog.String("this", p.settings.Limits.String()), slog.String("all", now.String())
	if now.RateLimits == p.settings.Limits {
		p.settings.Log.Info("delayqueue: the limits of this queue are those that this consumer asks for", asked)
		return
	}
	level := slog.LevelWarn
	if now.BySet { // on purpose
		level = slog.LevelInfo
	}
	p.settings.Log.Log(context.Background(), level,
		"delayqueue: other limits hold for this queue than this consumer asks for: "+
			"those that are set, or the least that one of its consumers asks for", asked, all, slog.Bool("set", now.BySet))
}

// A remembrance is what this consumer remembers of the totals of the queue. A failover or a restart may put the
// server back to an earlier state: its totals are smaller then, or it does not know the last fetch of this consumer.
// What was counted since this consumer started is forgotten then, at most. Of what came after the last fetch the
// consumer knows nothing.
type remembrance struct {
	first, last seenTotals         // of the first fetch, or the first one after the server had gone back; of the last one
	changed     message.ServerTime // the first fetch with the totals of the last one
	caller      string             // of the last fetch
	call        int64              // its number
}

type seenTotals struct {
	at            message.ServerTime // 0: nothing was seen
	stored, acked int64
}

// A rollback says what the server may have forgotten.
type rollback struct {
	since, until message.ServerTime // since 0: it is not known
	sent, acked  int64              // that this consumer had seen, at most
}

// callerKept is how long the server remembers a caller.
const callerKept = time.Hour

// see takes what a fetch said, and reports whether the server has gone back since the fetch before.
func (r *remembrance) see(c *script.Caller, got *script.FetchReply) (back rollback, gone bool) {
	first, last, t, now := r.first, r.last, got.Totals, seenTotals{got.Now, got.Totals.Stored, got.Totals.Acked}
	same := r.caller == c.ID // else the consumer has taken another name
	forgotten := same && t.Call < r.call && (t.Call != 0 || got.Now.Sub(last.at).Abs() < callerKept)
	gone = last.at != 0 && (forgotten || t.Stored < last.stored || t.Acked < last.acked)
	if gone {
		back = rollback{until: last.at, sent: last.stored - min(first.stored, now.stored),
			acked: last.acked - min(first.acked, now.acked)}
		if forgotten && t.Call != 0 {
			back.since = t.Heard
		}
	}
	told := gone && back.sent+back.acked > 0 && (back.since == 0 || back.since < r.changed)
	if r.last, r.caller, r.call = now, c.ID, c.N; gone || first.at == 0 {
		r.first = now
	}
	if gone || t.Stored != last.stored || t.Acked != last.acked {
		r.changed = now.at
	}
	return back, told
}

// compareTotals logs it, and tells event listeners, if the server has gone back to an earlier state of the queue.
func (p *poller) compareTotals(got *script.FetchReply) {
	back, gone := p.past.see(p.caller, got)
	if !gone {
		return
	}
	attrs := []any{slog.Time("until", message.InstantTime(int64(back.until)).UTC()), slog.Int64("sent", back.sent),
		slog.Int64("acked", back.acked)}
	if back.since != 0 {
		attrs = append(attrs, slog.Time("since", message.InstantTime(int64(back.since)).UTC()))
	}
	p.settings.Log.Error(
		"delayqueue: the server has gone back to an earlier state of this queue, or it was deleted: at most so many of "+
			"the sends and acks that this consumer had seen are forgotten", attrs...)
	p.events.RolledBack(int(back.sent+back.acked), message.InstantTime(int64(back.since)))
}
