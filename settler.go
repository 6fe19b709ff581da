package delayqueue

import (
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// An outcome ends a delivery.
type outcome struct {
	d        *delivery
	kind     outcomeKind
	delay    time.Duration  // of outcomeRetry
	throttle bool           // of outcomeRetry: nothing of the queue is handed out before (Throttle)
	failures int            // as they are from now on
	losses   int            // in a row; a settled failure or a snooze ends the row
	text     string         // error, as it is kept; "": none
	result   string         // of outcomeAck, what the handler said (SetResult)
	follows  []*sendMessage // of outcomeAck, what is sent with it (Then)
	err      error          // last error, for the garbage handler

	superseded bool // the message has ended, whatever the outcome (superseded.lua); set by finish
}

// expire makes an outcome garbage, for what would follow comes after the deadline. last is this delivery's error, if it has one.
func (o *outcome) expire(last error) {
	o.kind, o.delay, o.err = outcomeGarbage, 0, o.d.pastDeadline(last)
	o.text = errorText(o.err)
}

// bytes are those of its result and of what follows it.
func (o *outcome) bytes() int {
	n := len(o.result)
	for _, m := range o.follows {
		n += len(m.text)
	}
	return n
}

// settlement is the part of an outcome that goes to Redis.
func (o *outcome) settlement() settlement {
	s := settlement{
		tag: o.d.tag, id: o.d.msg.ID, key: o.d.msg.Key, number: o.d.msg.Delivery, kind: o.kind, failed: o.failures > o.d.msg.Failures,
		delay: o.delay, failures: o.failures, losses: o.losses, text: o.text, errors: o.d.errors, follows: o.follows,
	}
	if o.kind == outcomeRetry && !s.failed && o.losses <= o.d.losses && o.text == lastError(o.d.errors) {
		s.text = "" // what is put off for the same reason again and again leaves the errors before it
	}
	if o.kind == outcomeAck {
		s.parts = len(o.d.msg.Parts)
	}
	if o.kind == outcomeAck && s.key != "" {
		s.hold = o.d.keyHold
	}
	if o.kind == outcomeRetry && o.throttle {
		s.kind = outcomeThrottle
	}
	if o.kind == outcomeAck && o.d.retention > 0 {
		s.kind, s.delay, s.text = outcomeDone, o.d.retention, o.result
	}
	return s
}

// A settler sends outcomes to Redis. What gathers during one call goes out with the next.
type settler struct {
	settings  *settings
	store     *store
	lifecycle *lifecycle
	events    *events
	leases    *leases
	overruns  *overruns
	notices   *notices
	member    *member
	producer  *producer        // of what follows a message
	outbox    mailbox[outcome] // put by workers, the poller and Shutdown; run is its reader
	caller    *caller          // of run
	joint     chan *jointCall  // to the poller
	refills   atomic.Bool      // at its last fetch what was due waited for a place, so it takes joint calls; written by the poller
}

// settle takes the outcome of a delivery, unless it has another or is lost.
func (s *settler) settle(o outcome) {
	if o.d.claim(fateSettled) {
		s.outbox.put(o)
	} else {
		s.overruns.end(o.d)
	}
}

// close returns when what is in the outbox is settled. Nothing more may be put in.
func (s *settler) close() {
	s.outbox.close()
	s.outbox.running.Wait()
}

// run sends outcomes until there are none.
func (s *settler) run() {
	for {
		batch := s.outbox.some(maxBatch)
		if len(batch) == 0 {
			return
		}
		for len(batch) > 0 {
			n := fitting(batch)
			s.send(batch[:n])
			batch = batch[n:]
		}
	}
}

// fitting is how many outcomes go out with one call, because of their results, what follows them, the groups that are read and
// deleted with them, and the messages that are read if another send has superseded their deliveries: one at least.
func fitting(batch []outcome) int {
	messages, bytes := 0, 0
	for i := range batch {
		messages += 1 + len(batch[i].follows) + len(batch[i].d.msg.Parts)
		if bytes += batch[i].bytes(); batch[i].d.msg.Parts != nil || batch[i].kind != outcomeAck && batch[i].d.msg.Key != "" {
			bytes += len(batch[i].d.msg.Payload)
		}
		if i > 0 && (messages > maxBatch || bytes > maxBatchBytes) {
			return i
		}
	}
	return len(batch)
}

// send sends outcomes with one call, until Redis answers or it is given up.
func (s *settler) send(batch []outcome) {
	settlements := mapped(batch, (*outcome).settlement)
	for i := range batch {
		settlements[i].overrun = s.overruns.lease(batch[i].d)
	}
	var done settleReply
	s.caller.next()
	first := true
	err := s.lifecycle.retry("settle", s.caller, func() (err error) {
		if first {
			first = false
			if end, made := s.jointly(batch, settlements); made {
				done = end.reply
				return end.err
			}
		}
		done, err = s.store.settle(s.lifecycle.redisCtx, s.caller, settlements)
		return err
	}, func(n int, err error) bool { return !errors.Is(err, ErrBadReply) || n < optionalAttempts })
	s.settings.logOverflow(done.overflow)
	if done.doneOverflow > 0 {
		s.settings.log.Warn("delayqueue: deleted done messages, with their results, for want of room", slog.Int("messages", done.doneOverflow))
	}
	s.finish(batch, done, err)
}

// finish ends deliveries whose outcomes Redis has, or that are given up with err, and reports them. Settlements with an
// index in done.void had no effect: the delivery was lost, or the message canceled.
func (s *settler) finish(batch []outcome, done settleReply, err error) {
	void := done.void
	ds := mapped(batch, func(o *outcome) *delivery { return o.d })
	s.leases.remove(ds...)
	s.overruns.settled(ds, void)
	if err != nil {
		s.settings.log.Error("delayqueue: gave up settling: those of these messages that are not settled "+
			"will be delivered again when their leases have run out",
			slog.Any("error", err), attrsOf(ds))
		return
	}
	for _, i := range done.superseded {
		if batch[i].kind != outcomeAck {
			s.settings.log.Info("delayqueue: a message ends that is to come again or is garbage: while it was handled another send took its key",
				ds[i].attrs(), slog.String("key", ds[i].msg.Key))
		}
		batch[i].kind, batch[i].superseded = outcomeAck, true
	}
	if s.events.on() {
		s.tell(batch, void)
	}
	late := make([]*delivery, 0, len(void))
	for _, i := range void {
		late = append(late, ds[i])
		batch[i].err = nil
	}
	if len(late) > 0 {
		s.settings.log.Warn("delayqueue: settlements came too late and changed nothing: the deliveries were lost or the messages canceled",
			slog.Int("messages", len(late)), attrsOf(late))
	}
	var dead []deadLetterNotice
	for i := range batch {
		if o := &batch[i]; o.kind == outcomeGarbage && o.err != nil {
			dead = append(dead, deadLetterNotice{o.d.message(), o.failures, o.err})
		}
	}
	s.notices.put(dead...)
	s.followed(batch, done)
}

// followed reports what follows the messages of a batch.
func (s *settler) followed(batch []outcome, done settleReply) {
	refused := map[*sendMessage]bool{}
	for _, r := range done.refused {
		m := batch[r.settlement].follows[r.follower]
		refused[m] = true
		d := batch[r.settlement].d
		s.settings.log.Error("delayqueue: what was to follow a message is not stored: its key is held by another one", d.attrs(),
			slog.Group("follower", slog.String("id", m.id), slog.String("key", m.key)), slog.String("holder", r.holder))
		s.events.tell(RefusedEvent, 1, m.id)
	}
	var stored []string
	soonest := time.Duration(math.MaxInt64)
	for i := range batch {
		if slices.Contains(done.void, i) {
			continue
		}
		for _, m := range batch[i].follows {
			if !refused[m] {
				stored = append(stored, m.id)
				soonest = min(soonest, time.Duration(m.when.due(done.now)-done.now)*time.Microsecond)
			}
		}
	}
	if stored == nil {
		return
	}
	s.events.tell(NewMessageEvent, len(stored), stored...)
	if s.producer.batcher.onStored != nil {
		s.producer.batcher.onStored(soonest)
	}
}

// tell tells event listeners what became of deliveries.
func (s *settler) tell(batch []outcome, void []int) {
	ids := map[EventCode][]string{}
	for i := range batch {
		o := &batch[i]
		if slices.Contains(void, i) {
			continue
		}
		if o.superseded {
			ids[SupersededEvent] = append(ids[SupersededEvent], o.d.msg.ID)
		} else if o.kind == outcomeAck {
			ids[AckEvent] = append(ids[AckEvent], o.d.msg.ID)
		}
		if o.failures > o.d.msg.Failures {
			ids[NackEvent] = append(ids[NackEvent], o.d.msg.ID)
			if o.kind == outcomeRetry {
				ids[RetryEvent] = append(ids[RetryEvent], o.d.msg.ID)
			}
		}
		if o.kind == outcomeGarbage {
			ids[FinalFailedEvent] = append(ids[FinalFailedEvent], o.d.msg.ID)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(ids)) {
		s.events.tell(code, len(ids[code]), ids[code]...)
	}
}

// logOverflow logs that garbage was deleted for want of room.
func (s *settings) logOverflow(messages int) {
	if messages > 0 {
		s.log.Warn("delayqueue: deleted garbage for want of room", slog.Int("messages", messages))
	}
}
