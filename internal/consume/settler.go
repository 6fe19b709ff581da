package consume

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/event"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// An outcome ends a delivery.
type outcome struct {
	d        *delivery
	kind     script.OutcomeKind
	delay    time.Duration         // of OutcomeRetry
	throttle bool                  // of OutcomeRetry: nothing of the queue is handed out before (Throttle)
	leaves   bool                  // of OutcomeRetry: it leaves its lane until then (Again)
	failures int                   // as they are from now on
	losses   int                   // in a row; a settled failure or a snooze ends the row
	text     string                // error, as it is kept; "": none
	result   string                // of OutcomeAck, what the handler said (SetResult)
	follows  []*script.SendMessage // of OutcomeAck, what is sent with it (Then)
	err      error                 // last error, for the garbage handler

	// Set by finish:
	superseded bool // the message has ended, whatever the outcome, because another send took its key
	void       bool // no effect: the delivery was lost, the message canceled, or the call had no room for it
}

// expire makes an outcome garbage, because the next delivery would come after the deadline. last is this delivery's
// error, if it has one.
func (o *outcome) expire(last error) {
	o.kind, o.delay, o.err = script.OutcomeGarbage, 0, o.d.pastDeadline(last)
	o.text = message.ErrorText(o.err)
}

// refuse makes an ack garbage.
func (o *outcome) refuse(why error) {
	o.kind, o.err, o.text = script.OutcomeGarbage, why, message.ErrorText(why)
	o.result, o.follows = "", nil
}

// bytes are those of its result and of what follows it.
func (o *outcome) bytes() int {
	n := len(o.result)
	for _, m := range o.follows {
		n += len(m.Text)
	}
	return n
}

// settlement is the part of an outcome that goes to Redis.
func (o *outcome) settlement(settings *Settings) script.Settlement {
	s := script.Settlement{
		Lease: o.d.lease.Lease, Tag: o.d.tag, ID: o.d.msg.ID, Key: o.d.msg.Key, Number: o.d.msg.Delivery, Kind: o.kind,
		Failed: o.failures > o.d.msg.Failures,
		Delay:  o.delay, Failures: o.failures, Losses: o.losses, Text: o.text, Errors: o.d.errors, Follows: o.follows,
		Lane: o.d.lane, Leaves: o.leaves && o.kind == script.OutcomeRetry,
	}
	switch o.kind {
	case script.OutcomeRetry:
		if !s.Failed && o.losses <= o.d.losses && o.text == message.LastError(o.d.errors) {
			s.Text = "" // a message that is put off for the same reason again and again keeps the errors from before
		}
		if o.throttle {
			s.Kind = script.OutcomeThrottle
		}
	case script.OutcomeAck:
		s.Parts, s.Counts, s.Countdown = len(o.d.msg.Parts), o.d.counts, o.d.countdown
		if s.Key != "" {
			s.Hold = o.d.keyHold
		}
		if o.d.retention > 0 {
			s.Kind, s.Delay, s.Text, s.Room = script.OutcomeDone, o.d.retention, o.result, settings.DoneMax
		}
	case script.OutcomeGarbage:
		s.Room = settings.GarbageMax
	}
	return s
}

// A settler sends outcomes to Redis. Outcomes that gather during one call go out with the next.
type settler struct {
	settings   *Settings
	store      *script.Store
	events     event.Listeners
	lifecycle  *lifecycle
	member     *member
	leases     *leases
	notices    *notices
	wakeUpsOff *atomic.Bool // of the poller

	outbox conc.Mailbox[outcome] // put by workers, the poller and Shutdown; run is its reader
	caller *script.Caller        // of run
	more   conc.Signal           // sent when settlements let messages go; received by the poller
}

// settle takes the outcome of a delivery, unless the delivery has another outcome, or is lost.
func (s *settler) settle(o outcome) {
	if o.d.claim(fateSettled) {
		s.put(o)
	}
}

// put takes an outcome of a delivery whose fate has changed to it. After a stop Redis has another lease from then on.
func (s *settler) put(o outcome) {
	s.outbox.Put(o)
	if s.lifecycle.stopping() {
		s.lifecycle.extendDrain()
	}
}

// close returns when all outcomes in the outbox are settled. Nothing more may be put in.
func (s *settler) close() {
	s.outbox.End()
	s.outbox.Running.Wait()
}

// run sends outcomes until there are none.
func (s *settler) run() {
	var settlements []script.Settlement // in the same memory each time
	for {
		batch := s.outbox.All() // fitting divides them
		if len(batch) == 0 {
			return
		}
		for rest := batch; len(rest) > 0; {
			n := fitting(rest)
			settlements = settlements[:0]
			for i := range rest[:n] {
				settlements = append(settlements, rest[i].settlement(s.settings))
			}
			left := s.send(rest[:n], settlements)
			clear(settlements)
			if rest = rest[n:]; left != nil {
				rest = append(left, rest...)
			}
		}
		s.outbox.GiveBack(batch)
	}
}

// fitting is how many outcomes go out with one call, at least one. Their results count, the messages that follow
// them, the groups that are deleted with them, and the messages that Redis reads because another send may have taken
// their keys. What follows with a policy counts as in a call of put.
func fitting(batch []outcome) int {
	messages, bytes := 0, 0
	for i := range batch {
		messages += 1 + len(batch[i].follows) + len(batch[i].d.msg.Parts)
		for _, m := range batch[i].follows {
			if m.Put != nil {
				messages += script.MaxBatch/script.MaxPut - 1
			}
		}
		if bytes += batch[i].bytes(); batch[i].d.msg.Parts != nil || batch[i].kind != script.OutcomeAck &&
			batch[i].d.msg.Key != "" {
			bytes += len(batch[i].d.msg.Payload)
		}
		if i > 0 && (messages > script.MaxBatch || bytes > script.MaxBatchBytes) {
			return i
		}
	}
	return len(batch)
}

// send sends outcomes with one call, until Redis answers or it is given up. It returns those for which the call had
// no room.
func (s *settler) send(batch []outcome, settlements []script.Settlement) (left []outcome) {
	var done script.SettleReply
	s.caller.Next()
	// Only then the poller is told of more. It fetches, or sets the alarm for other consumers.
	fetches := !s.lifecycle.stopping() && (s.wakeUpsOff.Load() || s.member.hasRoom())
	err := s.lifecycle.retry("settle", s.caller, func() (err error) {
		done, err = s.store.Settle(s.lifecycle.redisCtx, s.caller, settlements, fetches)
		return err
	}, func(n int, err error) bool { return !errors.Is(err, script.ErrBadReply) || n < optionalAttempts })
	if done.More {
		s.more.Send()
	}
	s.settings.logOverflow(done.Overflow)
	if done.DoneOverflow > 0 {
		s.settings.Log.Warn("delayqueue: deleted done messages, with their results, for want of room",
			slog.Int("messages", done.DoneOverflow))
	}
	for _, i := range done.Left {
		o := batch[i]
		if slices.Contains(done.TooMuch, i) { // no other try would change less
			o.refuse(fmt.Errorf("%w: the messages that they change have more than 4 MB", errTooMuchFollows))
		}
		left = append(left, o)
	}
	s.finish(batch, done, err)
	return left
}

// finish ends deliveries whose outcomes Redis has, or that are given up with err, and reports them.
func (s *settler) finish(batch []outcome, done script.SettleReply, err error) {
	settled := make([]*delivery, 0, len(batch))
	for i := range batch {
		if !slices.Contains(done.Left, i) {
			settled = append(settled, batch[i].d)
		}
	}
	s.leases.remove(settled...)
	if err != nil {
		s.settings.Log.Error("delayqueue: gave up settling: those of these messages that are not settled "+
			"will be delivered again when their leases have run out",
			slog.Any("error", err), attrsOf(settled))
		return
	}
	for _, i := range done.Superseded {
		if batch[i].kind != script.OutcomeAck {
			s.settings.Log.Info(
				"delayqueue: a message ends that is to come again or is garbage: while it was handled another send took its key",
				batch[i].d.attrs(), slog.String("key", batch[i].d.msg.Key))
		}
		batch[i].kind, batch[i].superseded = script.OutcomeAck, true
	}
	var late []*delivery
	for _, i := range done.Void {
		late = append(late, batch[i].d)
	}
	for _, i := range slices.Concat(done.Void, done.Left) {
		batch[i].void = true
	}
	if s.events.On() {
		s.tell(batch)
	}
	if len(late) > 0 {
		s.settings.Log.Warn(
			"delayqueue: settlements came too late and changed nothing: the deliveries were lost or the messages canceled",
			slog.Int("messages", len(late)), attrsOf(late))
	}
	var dead []deadLetterNotice
	for i := range batch {
		if o := &batch[i]; o.kind == script.OutcomeGarbage && o.err != nil && !o.void {
			dead = append(dead, deadLetterNotice{o.d.message(), o.failures, o.text, o.err})
		}
	}
	s.notices.put(dead...)
	s.followed(batch, done)
}

// followed reports the messages that follow those of a batch.
func (s *settler) followed(batch []outcome, done script.SettleReply) {
	answered := map[*script.SendMessage]script.SendAnswer{} // those that were not stored
	var stored, moved []string
	for _, r := range done.Answers {
		m := batch[r.Settlement].follows[r.Follower]
		answered[m] = r.SendAnswer
		if r.Kind == script.AnswerKept {
			if m.Put.Moves() {
				moved = append(moved, r.Holder)
			}
			continue
		}
		d := batch[r.Settlement].d
		s.settings.Log.Error("delayqueue: what was to follow a message is not stored: its key is held by another one",
			d.attrs(),
			slog.Group("follower", slog.String("id", m.ID), slog.String("key", m.Key)), slog.String("holder", r.Holder))
		s.events.Tell(event.CodeRefused, 1, m.ID)
	}
	soonest := int64(math.MaxInt64)
	for i := range batch {
		if batch[i].void {
			continue
		}
		for _, m := range batch[i].follows {
			answer, other := answered[m]
			if !other {
				stored = append(stored, m.ID)
				answer.Due = m.When.Due(done.Now)
			}
			if answer.Due > 0 {
				soonest = min(soonest, answer.Due)
			}
		}
	}
	s.events.Tell(event.CodeNew, len(stored), stored...)
	s.events.Tell(event.CodeRescheduled, len(moved), moved...)
	if s.settings.OnStored != nil && soonest < math.MaxInt64 {
		s.settings.OnStored(time.Duration(soonest-done.Now) * time.Microsecond)
	}
}

// tell tells event listeners what became of deliveries.
func (s *settler) tell(batch []outcome) {
	ids := map[event.Code][]string{}
	for i := range batch {
		o := &batch[i]
		if o.void {
			continue
		}
		if o.superseded {
			ids[event.CodeSuperseded] = append(ids[event.CodeSuperseded], o.d.msg.ID)
		} else if o.kind == script.OutcomeAck {
			ids[event.CodeAck] = append(ids[event.CodeAck], o.d.msg.ID)
		}
		if o.failures > o.d.msg.Failures {
			ids[event.CodeNack] = append(ids[event.CodeNack], o.d.msg.ID)
			if o.kind == script.OutcomeRetry {
				ids[event.CodeRetry] = append(ids[event.CodeRetry], o.d.msg.ID)
			}
		}
		if o.kind == script.OutcomeGarbage {
			ids[event.CodeFinalFailed] = append(ids[event.CodeFinalFailed], o.d.msg.ID)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(ids)) {
		s.events.Tell(what, len(ids[what]), ids[what]...)
	}
}

// logOverflow logs that garbage was deleted for want of room.
func (s *Settings) logOverflow(messages int) {
	if messages > 0 {
		s.Log.Warn("delayqueue: deleted garbage for want of room", slog.Int("messages", messages))
	}
}
