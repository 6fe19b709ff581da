package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// This file decides what a message waits for. It reads nothing.

const (
	runNow   = "delayqueue run (RunNow) makes it due now"
	skipTurn = "delayqueue lanes skip (SkipToEnd, SkipToGarbage) lets the next of the lane pass"
	cancelIt = "delayqueue cancel (Cancel) ends its handler"
	setLimit = "delayqueue limits set (SetLimits) changes the limit"
)

// causes are why a message is not handled now, in the order in which they must end.
func (f *whyFacts) causes(msg *MessageStatus) []Cause {
	switch msg.State {
	case delayqueue.StateGarbage:
		return []Cause{Cause{Code: "garbage", Since: msg.At, Remedy: "delayqueue requeue (Requeue) brings it back"}.
			say("It was given up on at %s: %s", msg.At, msg.LastError)}
	case delayqueue.StateDone:
		acked := msg.At.Add(-msg.Retention)
		return []Cause{Cause{Code: "done", Since: acked, Until: msg.At}.say("It was acked at %s", acked)}
	case delayqueue.StateUnack:
		return f.inHand(msg)
	case delayqueue.StateReady:
		return f.ready()
	case delayqueue.StateWaiting:
		if !msg.At.After(f.now()) {
			return f.inLane(msg.Lane, msg.At)
		}
		return append([]Cause{f.notDue(msg)}, f.inLane(msg.Lane, msg.At)...)
	default:
		return append([]Cause{f.notDue(msg)}, f.stopped(msg.At)...)
	}
}

// notDue is what a message waits for that is not due.
func (f *whyFacts) notDue(msg *MessageStatus) Cause {
	c := Cause{Code: "instant", Until: msg.At, Remedy: runNow}
	switch last := msg.Delivery - 1; {
	case msg.State == delayqueue.StateRetry || msg.State == delayqueue.StateWaiting && last > 0:
		c.Code, c.Since = "retry", msg.EndedAt
		if len(msg.LastErrors) > 0 && msg.LastErrors[0].Delivery == last {
			return c.say("It waits for delivery %s until %s, because the one before went wrong at %s: %s", int64(msg.Delivery),
				msg.At, orUnknown(msg.EndedAt), msg.LastError)
		}
		return c.say("It waits for delivery %s until %s", int64(msg.Delivery), msg.At)
	case msg.CountdownLeft > 0:
		c.Code = "acks"
		if len(f.dead) > 0 {
			return f.behindDead(c, msg)
		}
		return c.say("It waits for acks that count for its key (%s of %s are missing), but not beyond %s",
			int64(msg.CountdownLeft), int64(msg.Countdown), msg.At)
	}
	return c.say("It is not due before %s", msg.At)
}

// behindDead is of a message that waits for acks of dead messages.
func (f *whyFacts) behindDead(c Cause, msg *MessageStatus) Cause {
	var names []string
	for _, dead := range f.dead[:min(len(f.dead), 3)] {
		c.Dead, names = append(c.Dead, dead.ID), append(names, cmp.Or(dead.Key, dead.ID))
	}
	c.Message, c.Remedy = c.Dead[0], "delayqueue requeue (Requeue) brings the dead back; "+runNow
	return c.say("It waits for acks that count for its key (%s of %s are missing), but not beyond %s. Dead messages that "+
		"count for it: %s; the last of them: %s", int64(msg.CountdownLeft), int64(msg.Countdown), msg.At, int64(len(f.dead)),
		strings.Join(names, ", "))
}

// stopped is what stops all hand-outs of the queue, if it lasts until an instant or longer, as far as is known.
func (f *whyFacts) stopped(until time.Time) (all []Cause) {
	lasts := func(end time.Time) bool { return end.IsZero() || end.After(until) }
	if n := &f.counts; n.Paused && lasts(n.PausedUntil) {
		all = append(all, f.paused())
	}
	if len(f.consumers) == 0 {
		all = append(all, Cause{Code: "consumer", Remedy: "Start one; the log of the last one may say why it ended"}.
			say("No consumer of the queue is alive"))
	}
	if end := f.counts.ThrottledUntil; !end.IsZero() && lasts(end) {
		all = append(all, Cause{Code: "throttle", Until: end, Remedy: "delayqueue limits lift (Unthrottle) ends that"}.
			say("A handler has throttled the queue until %s", end))
	}
	return all
}

func (f *whyFacts) paused() Cause {
	n := &f.counts
	c := Cause{Code: "resume", Since: n.PausedSince, Until: n.PausedUntil,
		Remedy: "delayqueue resume (Resume) ends the pause"}
	by, since := n.PausedBy, orUnknown(n.PausedSince)
	if by != "" && n.PauseReason != "" {
		by += ": "
	}
	switch by += n.PauseReason; {
	case by == "" && c.Until.IsZero():
		return c.say("The queue is paused since %s", since)
	case by == "":
		return c.say("The queue is paused since %s, until %s", since, c.Until)
	case c.Until.IsZero():
		return c.say("The queue is paused since %s (%s)", since, by)
	}
	return c.say("The queue is paused since %s, until %s (%s)", since, c.Until, by)
}

// ready is what a message waits for that is due, and has its turn.
func (f *whyFacts) ready() []Cause {
	if all := f.stopped(f.now()); len(all) > 0 {
		return all // what limits hold up is not known then
	}
	if f.counts.Limited {
		return f.limited()
	}
	busy, workers := 0, 0
	for _, c := range f.consumers {
		if c.cut() {
			busy += c.Concurrency // as far as is known
		} else {
			busy += min(len(c.Handling), c.Concurrency) // as internal/health counts them
		}
		workers += c.Concurrency
	}
	c := Cause{Code: "worker", Remedy: "More workers (WithConcurrent) or consumers end that, or " +
		"delayqueue cancel (Cancel) for a handler that hangs"}
	if longest := f.longest(&c); busy >= workers && longest {
		return []Cause{c.say("All workers are busy, %s of them; message %s has been handled for longest, since %s",
			int64(workers), c.Message, c.Since)}
	}
	if n := f.counts.Ready; n > 1 {
		oldest := f.now().Add(-f.counts.Behind)
		return []Cause{Cause{Code: "others", Since: oldest,
			Remedy: "More workers (WithConcurrent) or consumers handle them faster"}.
			say("Consumers take those first that were due before it: %s are due, the oldest since %s", n, oldest)}
	}
	return []Cause{Cause{Code: "nothing"}.say("Nothing holds it up: a consumer takes it next")}
}

// limited is which limits hold up what is ready.
func (f *whyFacts) limited() (all []Cause) {
	n := &f.counts
	c, since := Cause{Code: "concurrency", Remedy: setLimit}, orUnknown(n.LimitedSince)
	if places := n.Set.Concurrency; places > 0 && n.Unack >= int64(places) ||
		places == 0 && n.Asked.Concurrency > 0 && n.Unack >= int64(n.Asked.Concurrency) {
		limit := Limits{Concurrency: f.limits.Concurrency}.String()
		longest := f.longest(&c)
		if c.Since = n.LimitedSince; longest {
			c.Remedy = setLimit + ", and delayqueue cancel (Cancel) ends a handler that hangs"
			c = c.say("Messages wait since %s, because all places of the queue are taken (%s); message %s has been handled "+
				"for longest", since, limit, c.Message)
		} else {
			c = c.say("Messages wait since %s, because all places of the queue are taken (%s)", since, limit)
		}
		all = append(all, c)
	}
	if !n.LimitedUntil.IsZero() || len(all) == 0 {
		limit := f.limits
		limit.Concurrency = 0
		c := Cause{Code: "rate", Since: n.LimitedSince, Until: n.LimitedUntil, Remedy: setLimit}
		if c.Until.IsZero() { // it has just come
			c = c.say("Messages wait since %s for the rate limit of the queue (%s)", since, limit.String())
		} else {
			c = c.say("Messages wait since %s for the rate limit of the queue (%s); the next goes at %s", since, limit.String(),
				c.Until)
		}
		all = append(all, c)
	}
	return all
}

// longest sets which message has been handled for longest, by which consumer and since when. It reports whether there
// is one.
func (f *whyFacts) longest(c *Cause) (found bool) {
	var most time.Duration
	for _, one := range f.consumers {
		if len(one.Handling) > 0 && (!found || one.Handling[0].For > most) {
			h := one.Handling[0]
			found, most, c.Message, c.Consumer, c.Since = true, h.For, h.ID, one.ID, h.Since
		}
	}
	return found
}

// inHand is of a message that a consumer has.
func (f *whyFacts) inHand(msg *MessageStatus) []Cause {
	for _, one := range f.consumers {
		i := slices.IndexFunc(one.Handling, func(h Handling) bool { return h.ID == msg.ID })
		if i < 0 {
			continue
		}
		c := Cause{Code: "handled", Since: one.Handling[i].Since, Consumer: one.ID, Remedy: cancelIt}
		where := fmt.Sprintf("process %d on %s", one.PID, one.Host)
		if msg.Timeout <= 0 {
			return []Cause{c.say("A handler has it since %s (%s)", c.Since, where)}
		}
		c.Until = c.Since.Add(msg.Timeout)
		return []Cause{c.say("A handler has it since %s (%s), and may run until %s", c.Since, where, c.Until)}
	}
	c := Cause{Code: "lease", Until: msg.At, Consumer: msg.Consumer}
	cut := slices.ContainsFunc(f.consumers, func(one Consumer) bool {
		return one.cut() && (msg.Consumer == "" || msg.Consumer == one.ID)
	})
	switch {
	case msg.At.IsZero():
		c = c.say("A consumer has fetched it, and no handler has it yet, as far as consumers say")
	case !msg.At.After(f.now()):
		c.Since, c.Until = msg.At, time.Time{}
		c = c.say("Its lease ended at %s, and a consumer hands it out again", msg.At)
	case cut:
		c = c.say("Its consumer reports only a part of its handlers; if it is gone, this is handed out again after %s",
			msg.At)
	default:
		c = c.say("A consumer has fetched it, and no handler had it when consumers last reported, as they do once a second; "+
			"if its consumer is gone, it is handed out again after %s", msg.At)
	}
	return append([]Cause{c}, f.stopped(msg.At)...)
}

// inLane is what the next message of a lane waits for, which is due at that instant. If the message that has the turn
// is ready, what holds that up comes first. Else what stops the queue comes after the turn.
func (f *whyFacts) inLane(name string, due time.Time) []Cause {
	c := Cause{Code: "lane"}
	if !due.After(f.now()) {
		c.Since = due
	}
	if f.lane == nil || len(f.lane.Holders) == 0 {
		return append([]Cause{c.say("It waits for its turn in lane %s", name)}, f.stopped(later(due, f.now()))...)
	}
	h := f.lane.inFront()
	c.Message, c.Consumer, c.Remedy = h.ID, h.Consumer, skipTurn
	switch h.State {
	case delayqueue.StateReady:
		c.Remedy = "" // what holds that up comes first
		c = c.say("In lane %s message %s is in front, and is due, too", name, h.ID)
		var first []Cause
		for _, one := range f.ready() {
			if one.Code != "nothing" {
				first = append(first, one)
			}
		}
		return append(append(first, c), f.beforeIt(name)...)
	case delayqueue.StateRetry:
		c.Until = h.At
		c = f.behindRetry(c, h)
	case delayqueue.StatePending:
		c.Until = h.At
		c = c.say("In lane %s message %s is in front, and is due at %s", name, h.ID, h.At)
	case delayqueue.StateUnack:
		c.Remedy = cancelIt
		if h.At.IsZero() {
			c = c.say("In lane %s message %s is in front, and a consumer has it", name, h.ID)
		} else {
			c = c.say("In lane %s message %s is in front, and is handled since %s", name, h.ID, h.At)
		}
	default: // another program has deleted it: the next fetch ends the turn
		c.Remedy = ""
		c = c.say("In lane %s message %s is in front, which is gone", name, h.ID)
	}
	return append(append([]Cause{c}, f.beforeIt(name)...), f.stopped(later(c.Until, f.now()))...)
}

// beforeIt is of the messages that get their turns before it does.
func (f *whyFacts) beforeIt(lane string) []Cause {
	if f.before == 0 {
		return nil
	}
	return []Cause{Cause{Code: "lane"}.say("Messages that wait before it in lane %s: %s", lane, f.before)}
}

// behindRetry is of a message behind one that waits for a retry. When the next delivery comes is no promise to it,
// because that may fail as well.
func (f *whyFacts) behindRetry(c Cause, h *Holder) Cause {
	m := f.front
	if m == nil || m.Broken != nil || m.Failures == 0 {
		return c.say("In lane %s message %s is in front, and its delivery %s is tried at %s. What is behind waits until a "+
			"message in front succeeds, is given up or is skipped", f.lane.Name, h.ID, int64(h.Delivery), h.At)
	}
	name, last := h.ID, []rune(m.LastError)
	if m.Key != "" {
		name = m.Key + " (" + h.ID + ")"
	}
	if len(last) > longestError {
		last = append(last[:longestError-1], '…')
	}
	return c.say("In lane %s message %s is in front. It has failed %s of at most %s times, the last time with: %s. Its "+
		"next try is delivery %s at %s. What is behind waits until a message in front succeeds, is given up or is skipped",
		f.lane.Name, name, int64(m.Failures), int64(m.MaxRetries)+1, string(last), int64(m.Delivery), m.At)
}

// longestError is how many characters of the last error of another message a cause has.
const longestError = 200

// inFront is the message with a turn that is likely to end first: one that is being handled, or else one that is ready,
// or else the one that is due first.
func (l *Lane) inFront() *Holder {
	rank := func(h *Holder) int {
		return slices.Index([]delayqueue.State{delayqueue.StateReady, delayqueue.StateUnack}, h.State)
	}
	first := &l.Holders[0]
	for i := range l.Holders {
		h := &l.Holders[i]
		if rank(h) > rank(first) || rank(h) == rank(first) && h.At.Before(first.At) {
			first = h
		}
	}
	return first
}

// orUnknown is an instant for a sentence.
func orUnknown(at time.Time) any {
	if at.IsZero() {
		return "?"
	}
	return at
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
