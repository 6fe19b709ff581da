package web

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/ops"
)

// A messageView is one message.
type messageView struct {
	*ops.MessageStatus
	Facts   []fact
	Why     []cause  // what it waits for; none if it does not wait, or if that cannot be read now
	Moments []moment // the oldest first
	Headers []headerLink
	Others  int    // headers that are not shown
	Returns string // the part of the result that is shown
	Shown   int    // bytes of that
	Payload *payload
	Holder  *ops.Consumer
	Since   time.Time // Holder handles it since then, if that is known
	Verbs   []verb    // what may be done to it
	Large   bool      // too large to be read here
}

// A fact is something with its name.
type fact struct{ Name, Value string }

// A moment is something that happened to a message, or will.
type moment struct {
	At   time.Time
	What string
	Text string // of somebody else's
	Next bool   // it is to come
}

// message shows a message, by its id or its key.
func (h *Handler) message(ctx context.Context, r *request) (any, error) {
	m := r.Monitor()
	var msg *ops.MessageStatus
	var err error
	if id := r.Arg("id"); id != "" {
		msg, err = m.Get(ctx, id)
	} else {
		msg, err = m.GetKey(ctx, r.Arg("key"))
	}
	if err != nil {
		return nil, err
	}
	v := &messageView{
		MessageStatus: msg, Facts: r.lang.factsOf(msg), Moments: r.lang.momentsOf(msg, time.Now()),
		Headers: r.headersOf(msg, math.MaxInt), Payload: r.payloadOf(msg),
	}
	why, late := r.why(ctx, m, msg)
	v.Why = why
	if msg.Consumer != "" {
		if err := v.findHolder(ctx, m); err != nil {
			return nil, err
		}
	}
	v.Others = max(len(v.Headers)-headersShown, 0)
	v.Headers = v.Headers[:len(v.Headers)-v.Others]
	v.Shown = min(len(msg.Result), payloadShown)
	v.Returns = visible(msg.Result[:v.Shown])
	if v.Verbs = r.verbsFor(msg.State); msg.Lane != "" {
		v.Verbs = append(v.Verbs, r.turnVerbs(msg.State, late)...)
	}
	v.Large = errors.Is(msg.Broken, ops.ErrNotRead)
	return v, nil
}

// A cause is a reason why a message is not handled now, in words.
type cause struct {
	Text  string
	ID    string // of the message that is in the way; "": none, or it is not known
	Front bool   // ID is in front in a lane
	Name  string // the key of the message in front, or ID
	Verbs []verb // what may be done to it, so that the next of the lane passes
}

// why is what a message waits for. The page of a message does without it if Redis does not say it soon.
// late says whether a message that is due waits for a turn in its lane, as far as is known.
func (r *request) why(ctx context.Context, m *ops.Queue, msg *ops.MessageStatus) (all []cause, late bool) {
	if msg.State == delayqueue.StateGarbage || msg.State == delayqueue.StateDone || msg.Consumer != "" {
		return nil, false // the page says so itself
	}
	ctx, cancel := r.h.soon(ctx)
	defer cancel()
	w, err := m.Why(ctx, msg.ID)
	if err != nil || w.Message.State != msg.State {
		return nil, true
	}
	if msg.Lane != "" {
		lane, err := m.Lane(ctx, msg.Lane)
		late = err != nil || lane.Blocked(w.Now)
	}
	return r.causes(ctx, w, late), late
}

func (r *request) causes(ctx context.Context, w *ops.Why, late bool) (all []cause) {
	for _, c := range w.Causes {
		english, args := c.Say()
		one := cause{Text: r.lang.text(health.Text{English: english, Args: args}), ID: c.Message, Front: c.Code == "lane"}
		if one.Front && !c.Until.IsZero() && w.Message != nil { // the page of a lane has these beside the message
			one.Name, one.Verbs = c.Message, r.turnVerbs(delayqueue.StateRetry, late)
			if front, err := r.Monitor().Get(ctx, c.Message); err == nil {
				one.Name = cmp.Or(front.Key, one.Name)
			}
		}
		all = append(all, one)
	}
	return all
}

// findHolder finds the consumer that handles the message.
func (v *messageView) findHolder(ctx context.Context, m *ops.Queue) error {
	all, err := m.Consumers(ctx)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.ID != v.Consumer {
			continue
		}
		v.Holder = &c
		for _, h := range c.Handling {
			if h.ID == v.ID {
				v.Since = c.Seen.Add(-h.For)
			}
		}
	}
	return nil
}

// state is a state in words.
func (l *language) state(s delayqueue.State) string {
	if s == delayqueue.StateUnack {
		return l.say("being handled")
	}
	return l.say(s.String())
}

// factsOf are counts, and settings that are not the default.
func (l *language) factsOf(m *ops.MessageStatus) []fact {
	all := []fact{{l.say("Delivery"), l.number(m.Delivery)},
		{l.say("Failures"), l.say("%s, with %s retries", l.number(m.Failures), l.number(m.MaxRetries))}}
	add := func(there bool, name, value string) {
		if there {
			all = append(all, fact{name, value})
		}
	}
	add(m.Losses > 0, l.say("Losses in a row"), l.number(m.Losses))
	add(m.TTL > 0, l.say("May wait, once due"), l.duration(m.TTL))
	add(m.Timeout > 0, l.say("A handler may run"), l.duration(m.Timeout))
	add(m.Timeout < 0, l.say("A handler may run"), l.say("for any time"))
	add(m.Retention > 0, l.say("Kept, once done"), l.duration(m.Retention))
	add(m.Countdown > 0, l.say("Acks"), l.say("%s of %s have come, %s are missing", l.number(m.Countdown-m.CountdownLeft),
		l.number(m.Countdown), l.number(m.CountdownLeft)))
	add(m.PartCount > 0, l.say("Parts"), l.say("%s with %s bytes", l.number(m.PartCount), l.number(m.PartBytes)))
	return all
}

// momentsOf is what is known of a message's past and future.
func (l *language) momentsOf(m *ops.MessageStatus, now time.Time) []moment {
	var all []moment
	add := func(at time.Time, what, text string) {
		if !at.IsZero() {
			all = append(all, moment{at, what, text, at.After(now)})
		}
	}
	if us := message.SentAt(m.ID); us > 0 {
		add(time.UnixMicro(us), l.say("Sent, by the sender's clock"), "")
	}
	add(m.Due, l.say("Due for the first time"), "")
	for _, e := range m.LastErrors {
		if e.Delivery > 0 {
			add(e.At, l.say("Delivery %s went wrong", l.number(e.Delivery)), "")
		}
	}
	if len(m.LastErrors) == 0 || !m.LastErrors[0].At.Equal(m.EndedAt) {
		add(m.EndedAt, l.say("A delivery ended"), "")
	}
	switch m.State {
	case delayqueue.StateRetry:
		add(m.At, l.say("Next delivery"), "")
	case delayqueue.StateWaiting:
		add(m.At, l.say("Due, and then behind those of its lane that are due before it"), "")
	case delayqueue.StateUnack:
		add(m.At, l.say("Its lease ends, if it is not renewed"), "")
	case delayqueue.StateGarbage:
		add(m.At, l.say("Given up on"), m.LastError)
	case delayqueue.StateDone:
		add(m.At, l.say("Kept until then"), "")
	}
	add(m.Deadline, l.say("Deadline: no delivery from then on"), "")
	slices.SortStableFunc(all, func(a, b moment) int { return a.At.Compare(b.At) })
	return all
}

// A headerLink is a header, and the address of the list of all messages that have the same.
type headerLink struct {
	fact
	Link string // "": no short address selects it
}

const longestHeaderLink = 1000 // bytes

// headersOf are the headers of a message, with so many bytes at most. The first that does not fit is cut.
func (r *request) headersOf(m *ops.MessageStatus, most int) (all []headerLink) {
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if most <= 0 {
			break
		}
		value := m.Headers[name]
		one := headerLink{fact: fact{strings.Clone(beginning(name, most)),
			strings.Clone(beginning(value, max(most-len(name), 0)))}}
		read, _, _ := strings.Cut(strings.TrimSpace(name), "=") // as a selection reads it
		to := linkOf("messages", nil, "q", r.Queue, "header", name+"="+value)
		if read == name && strings.TrimSpace(value) == value && len(to) <= longestHeaderLink {
			one.Link = to
		}
		all, most = append(all, one), most-len(name)-len(value)
	}
	return all
}

// A place is a box of the picture of a message's life.
type place struct {
	State       delayqueue.State
	X, Y, Width int
}

// Places are all. The template has the arrows.
func (m *messageView) Places() []place {
	all := []place{
		{delayqueue.StatePending, 1, 10, 98}, {delayqueue.StateReady, 130, 10, 98}, {delayqueue.StateUnack, 256, 10, 103},
		{delayqueue.StateGarbage, 1, 75, 98}, {delayqueue.StateRetry, 130, 75, 98}, {delayqueue.StateDone, 295, 75, 64},
	}
	if m.Lane != "" {
		all = append(all, place{delayqueue.StateWaiting, 1, -55, 98})
	}
	return all
}
