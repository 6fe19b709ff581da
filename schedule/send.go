package schedule

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// pageSize is how many messages are sent in one call.
const pageSize = 500

// sendDue sends what is due, or will be soon, in rounds of one message for each entry: an instant is sent when the
// one before it is settled. It returns the first error after which the rest is left to the next look.
func (p *part) sendDue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	for {
		due := p.due()
		if len(due) == 0 {
			return nil
		}
		for page := range slices.Chunk(due, pageSize) {
			if err := p.sendPage(ctx, page); err != nil {
				return err
			}
		}
	}
}

// due are the entries that have something to send, the soonest first.
func (p *part) due() (due []*entry) {
	now := p.reading.now() / 1_000_000
	if now+aheadSeconds > maxInstant { // no number has room for it
		return nil
	}
	for _, e := range p.entries {
		if !e.runs() || e.last < 0 || e.resting == p.reading {
			continue
		}
		if e.next < now-lateSeconds && (e.next < e.from || now > e.fromAt+lateSeconds) {
			e.from, e.fromAt = e.caughtUp(now), now
			e.next = e.from
		}
		if e.never {
			continue
		}
		if e.next <= now || e.Overlap == Allow && e.next <= now+aheadSeconds {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b *entry) int { return int(a.next - b.next) })
	return due
}

// caughtUp is the instant that comes next if those since the last one were missed: the first of the latest CatchUp of
// them, or else the next that is to come.
func (e *entry) caughtUp(now int64) int64 {
	next, found := e.when.next(now)
	if !found {
		next = maxInstant
	}
	most := e.CatchUp
	if e.Overlap == Skip { // the first of several would keep out those after it
		most = min(most, 1)
	}
	first, missed := e.when.latest(next, e.last, most)
	if e.never = !found && !missed; missed {
		return first
	}
	return next
}

// sendPage sends one message for each of these entries.
func (p *part) sendPage(ctx context.Context, page []*entry) error {
	now := p.reading.now() / 1_000_000
	var sent, skipped, expired, ran []*entry // of these three nothing is sent for this instant
	var batch []delayqueue.Outgoing
	reached := map[string]int64{} // a server that has forgotten them must not take what comes after
	for _, e := range page {
		if slices.Contains(e.Ran, e.next) {
			ran = append(ran, e)
			continue
		}
		opts, fresh := e.options(now)
		if !fresh {
			expired = append(expired, e)
			continue
		}
		sent, batch = append(sent, e), append(batch, delayqueue.Outgoing{Payload: string(e.Payload), Options: opts})
		if e.after > 0 {
			reached[sequenceOf(e.name)] = e.after
		}
	}
	var results []delayqueue.SendResult
	if len(batch) > 0 {
		results, _ = p.queue.SendBatch(script.WithReached(ctx, reached), batch)
	}
	var failed error
	for i, result := range results {
		e := sent[i]
		var far *delayqueue.SequenceError
		switch err := result.Err; {
		case errors.As(err, &far):
			if gen, instant := split(far.Last); gen == e.Gen && errors.Is(err, delayqueue.ErrSequence) {
				p.settle(e, instant, err) // another replica was faster
			} else {
				e.last = -1 // it was changed, or a failover has forgotten what was sent: the next look shows that
			}
		case errors.Is(err, delayqueue.ErrDuplicateKey):
			skipped = append(skipped, e) // its last message lives
		case err == nil, errors.Is(err, delayqueue.ErrNotReplicated):
			p.tellSent(e, result.Info, now)
			p.skipped(e, 0, 0)
			p.settle(e, e.next, err)
		case errors.Is(err, delayqueue.ErrBadOption), errors.Is(err, delayqueue.ErrPayloadTooLarge):
			p.leave(ctx, e, err)
		default: // it is not known, or was refused for now
			failed = err
		}
	}
	for code, passed := range map[EventCode][]*entry{SkippedEvent: skipped, ExpiredEvent: expired, noEvent: ran} {
		if err := side(passed, func(e *entry) error { return p.pass(ctx, e, code) }); err != nil {
			return err
		}
	}
	return failed
}

// settle settles an instant whose message is there. If too few replicas of the server have it, a failover may forget
// it, and take the next one all the same, which would leave it out. So nothing more is sent for the entry until
// another look has found the history of the server to be the same; and if the instant is ahead still, it is sent
// again then.
func (p *part) settle(e *entry, instant int64, err error) {
	if errors.Is(err, delayqueue.ErrNotReplicated) {
		e.resting = p.reading
		if e.next*1_000_000 > p.reading.now() {
			return
		}
	}
	e.settled(instant)
	e.after = number(e.Gen, instant)
}

// options are those of the message of an entry's next instant; false if its TTL is over.
func (e *entry) options(now int64) (opts []delayqueue.MsgOption, fresh bool) {
	instant := time.Unix(e.next, 0)
	settings := e.Options
	if late := seconds(now - e.next); settings.TTL > 0 &&
		late > 0 { // it counts from the instant, and the message is due now
		if settings.TTL -= late; settings.TTL <= 0 {
			return nil, false
		}
	}
	key := keyOf(e.name, e.Gen, e.next)
	if e.Overlap == Skip {
		key = sequenceOf(e.name)
	}
	return append(settings.Options(), delayqueue.WithSchedule(instant),
		delayqueue.WithSequence(sequenceOf(e.name), number(e.Gen, e.next)),
		delayqueue.WithKey(key), delayqueue.WithHeader(nameHeader, e.name),
		delayqueue.WithHeader(instantHeader, instant.In(e.zone).Format(time.RFC3339))), true
}

// noEvent is the code of an instant that has run before it came.
const noEvent EventCode = 0

// pass settles the next instant of an entry without a message. code says why.
func (p *part) pass(ctx context.Context, e *entry, code EventCode) error {
	before, err := p.monitor.PassSequence(ctx, sequenceOf(e.name), number(e.Gen, e.next))
	if err != nil && !errors.Is(err, delayqueue.ErrNotFound) {
		return err
	}
	if before < number(e.Gen, e.next) && code != noEvent { // else another replica was faster
		p.tell(code, e, "", p.reading.now())
		if code == SkippedEvent {
			p.skipped(e, 1, 0)
		} else {
			p.skipped(e, 0, 1)
		}
	}
	e.after = max(before, number(e.Gen, e.next))
	if gen, instant := split(max(before, 0)); gen > e.Gen {
		e.last = -1 // it was changed: the next look shows that
	} else if e.settled(e.next); gen == e.Gen {
		e.settled(instant)
	}
	return nil
}

// mostSkipsKept is how many skips are kept while Redis cannot be told.
const mostSkipsKept = 10_000

// skipped notes what the next instant of an entry, which this replica has settled, left out: itself, or what nobody
// ran before it. An entry has one skip at a time, for look knows by the last one what it has counted.
func (s *Scheduler) skipped(e *entry, overlap, missed int64) {
	if e.next == e.from {
		missed += e.when.count(e.last, e.next)
	}
	one := skip{e.name, number(e.Gen, e.next), overlap, missed}
	s.mu.Lock() // entries are passed side by side
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.skips, func(one skip) bool { return one.name == e.name })
	switch {
	case overlap+missed == 0 || at < 0 && len(s.skips) >= mostSkipsKept || at >= 0 && s.skips[at].number == one.number:
	case at < 0:
		s.skips = append(s.skips, one)
	default:
		one.overlap, one.missed = one.overlap+s.skips[at].overlap, one.missed+s.skips[at].missed
		s.skips[at] = one
	}
}

// leave leaves an entry alone that cannot be sent for, and notes why.
func (s *Scheduler) leave(ctx context.Context, e *entry, why error) {
	e.left = true
	log := s.log.With(slog.String("queue", s.queue.Name()), slog.String("entry", e.name))
	log.Error("schedule: an entry cannot be sent, and is left alone", slog.Any("error", why))
	if err := s.table.refuse(ctx, e.name, e.Gen, script.OneLine(why.Error(), script.MaxWhy)); err != nil {
		log.Error("schedule: that it cannot be sent is not noted", slog.Any("error", err))
	}
}
