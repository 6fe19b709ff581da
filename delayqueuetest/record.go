package delayqueuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/ops"
)

// record is every message that was stored, as Redis was told to keep it.
type record struct {
	rig *Rig

	mu       sync.Mutex // guards the fields below
	messages []*sent    // in the order of the sends
	byID     map[string]*sent
}

// sent is a message that was stored.
type sent struct {
	queue, id, envelope string
	parts               []string // of a group, but for the first
	countdown           string   // as parts has it
}

// command sees each command before it is carried out, those of scripts, too.
func (c *record) command(_ *server.Peer, cmd string, args ...string) bool {
	if len(args) < 3 {
		return false
	}
	queue, structure, _ := strings.Cut(args[0], "}:")
	switch {
	case strings.HasPrefix(cmd, "EVAL") && slices.EqualFunc(args[2:min(7, len(args))], awaitKeys, strings.HasSuffix):
		signal(c.rig.awaited)
	case cmd == "ZADD" && structure == "wake":
		signal(c.rig.armed)
	}
	if cmd != "HSET" {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 1; i+1 < len(args); i += 2 {
		switch structure {
		case "msg": // a hash, as parts are
			c.store(queue+"}", args[i], args[i+1])
		case "parts":
			id, n, _ := strings.Cut(args[i], ":")
			if m := c.byID[queue+"}"+id]; m != nil && n == "0" {
				m.countdown = args[i+1]
			} else if m != nil {
				m.parts = append(m.parts, args[i+1])
			}
		}
	}
	return false
}

// awaitKeys are those of the script with which somebody waits for results.
var awaitKeys = []string{":garbage", ":msg", ":fail", ":done", ":result"}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// store notes what is kept of a message from now on, with mu held.
func (c *record) store(queue, id, text string) {
	if m := c.byID[queue+id]; m != nil { // it was replaced, put off, or appended to
		m.envelope = text
		return
	}
	if c.byID == nil {
		c.byID = make(map[string]*sent)
	}
	m := &sent{queue: queue, id: id, envelope: text}
	c.byID[queue+id] = m
	c.messages = append(c.messages, m)
}

// Sent is every message that was sent to a queue, in the order of the sends, whoever sent it: the test, the code
// under test, a handler (Then). Each is as it is now: where it waits, or StateDone or StateGarbage, or StateGone when
// it was handled or taken out; then it is as it was last sent, and Delivery says nothing. name is the queue's, of any
// prefix.
func (r *Rig) Sent(name string) (all []*ops.MessageStatus) {
	r.t.Helper()
	r.record.mu.Lock()
	messages := slices.Clone(r.record.messages)
	r.record.mu.Unlock()
	for _, m := range messages {
		prefix, of, _ := strings.Cut(strings.Trim(m.queue, "{}"), ":")
		if of != name {
			continue
		}
		now, err := r.monitor(prefix, name).Get(context.Background(), m.id)
		if errors.Is(err, delayqueue.ErrNotFound) {
			now, err = m.status(), nil
		}
		if err != nil {
			r.t.Fatalf("delayqueuetest: %v", err)
		}
		all = append(all, now)
	}
	return all
}

// status is the message as it was last sent.
func (m *sent) status() *ops.MessageStatus {
	e, err := message.DecodeEnvelope(m.envelope)
	status := &ops.MessageStatus{
		State: delayqueue.StateGone, TTL: e.TTL, Deadline: message.InstantTime(e.Deadline), Retention: e.Retention,
		Timeout:   e.Timeout,
		Countdown: e.Countdown, Counts: e.Counts, LaneWidth: e.Lane.Width,
	}
	if e.Group.Count > 0 {
		status.PartCount, status.PartBytes = e.Group.Count, len(e.Payload)+e.Group.Bytes
		err = e.Group.Fill(m.parts)
	}
	status.Message, status.Broken = delayqueue.Message(e.Delivered(m.id, 1, 0)), err
	if counted, n := 0, 0; e.Countdown > 0 {
		_, _ = fmt.Sscan(m.countdown, &counted, &n) // what the scripts have written
		status.CountdownLeft = max(n-counted, 0)
	}
	return status
}

func (r *Rig) monitor(prefix, name string) *ops.Queue {
	return ops.Of(delayqueue.NewMonitor(name, r.cli, delayqueue.UseCustomPrefix(prefix)))
}

// Garbage is what a queue gave up on and still keeps (WithGarbageRetention), in the order in which it did. LastError
// says why.
func (r *Rig) Garbage(name string) (all []*ops.MessageStatus) {
	r.t.Helper()
	for _, q := range r.stored(name) {
		all = append(all, r.list(q.prefix, q.name, delayqueue.StateGarbage)...)
	}
	return all
}

// listTime bounds the attempts to list messages, on a machine that is busy.
const listTime = time.Minute

func (r *Rig) list(prefix, name string, state delayqueue.State) (all []*ops.MessageStatus) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), listTime)
	defer cancel()
	for msg, err := range r.monitor(prefix, name).All(ctx, state, ops.Filter{}) {
		if err != nil {
			r.t.Fatalf("delayqueuetest: %v", err)
		}
		all = append(all, msg)
	}
	return all
}

type stored struct{ prefix, name string }

// stored are the queues that have a key, in order: those with one of these names, or all if there are none.
func (r *Rig) stored(names ...string) (all []stored) {
	for _, key := range r.server.Keys() {
		tag, ok := strings.CutSuffix(key, "}:state")
		prefix, name, _ := strings.Cut(strings.TrimPrefix(tag, "{"), ":")
		if ok && (len(names) == 0 || slices.Contains(names, name)) {
			all = append(all, stored{prefix, name})
		}
	}
	return all
}

const mostShown = 20

// RequireEmpty ends the test if one of these queues, or any at all if there are none, holds a message that waits, is
// being handled, or is garbage, and says which. Done messages, which are kept to be looked at, do not count.
func (r *Rig) RequireEmpty(names ...string) {
	r.t.Helper()
	var lines []string
	for _, q := range r.stored(names...) {
		for _, state := range []delayqueue.State{delayqueue.StateUnack, delayqueue.StateReady, delayqueue.StatePending,
			delayqueue.StateRetry, delayqueue.StateWaiting, delayqueue.StateGarbage} {
			for _, m := range r.list(q.prefix, q.name, state) {
				lines = append(lines, fmt.Sprintf("queue %q: %s", q.name, r.describe(m)))
			}
		}
	}
	if lines == nil {
		return
	}
	more := ""
	if n := len(lines) - mostShown; n > 0 {
		lines, more = lines[:mostShown], fmt.Sprintf("\n\t… and %d more", n)
	}
	r.t.Fatalf("delayqueuetest: at %s, not empty:\n\t%s%s", r.Now().UTC().Format(time.DateTime),
		strings.Join(lines, "\n\t"), more)
}

// describe says in a line what a message is and where.
func (r *Rig) describe(m *ops.MessageStatus) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", m.State, short(m.Payload))
	if m.Key != "" {
		fmt.Fprintf(&b, " key %s", short(m.Key))
	}
	switch in := m.At.Sub(r.Now()); m.State {
	case delayqueue.StatePending, delayqueue.StateRetry, delayqueue.StateWaiting:
		fmt.Fprintf(&b, ", due in %v", in)
	case delayqueue.StateGarbage:
		fmt.Fprintf(&b, ", for %v", -in)
	}
	if m.Lane != "" {
		fmt.Fprintf(&b, ", in lane %s", short(m.Lane))
	}
	if m.Countdown > 0 {
		fmt.Fprintf(&b, ", waits for %d of %d acks", m.CountdownLeft, m.Countdown)
	}
	if m.Failures > 0 {
		fmt.Fprintf(&b, ", failures %d of %d", m.Failures, m.MaxRetries+1)
	}
	if m.LastError != "" {
		fmt.Fprintf(&b, ": %s", short(m.LastError))
		if ahead := time.Until(r.Now()); !r.bubble && ahead > 0 &&
			strings.Contains(m.LastError, delayqueue.ErrExpired.Error()) {
			fmt.Fprintf(&b, " (the rig's clock is %v ahead of time.Now: give the code rig.Now)", ahead.Round(time.Second))
		}
	}
	return b.String()
}

// short is a text as it is shown.
func short(text string) string {
	const most = 200
	if len(text) > most {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(text[:most], ""))
	}
	return fmt.Sprintf("%q", text)
}
