package consume

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A deadLetterNotice is a message that went to garbage, for the garbage handler.
type deadLetterNotice struct {
	msg      *message.Delivered
	failures int
	text     string // of err
	err      error  // why
}

// maxNotices is how many messages may wait for the garbage handler.
const maxNotices = 1000

// notices tells the log and, one message after the other, the garbage handler of messages that went to garbage.
type notices struct {
	settings  *Settings
	lifecycle *lifecycle
	waiting   conc.Mailbox[deadLetterNotice] // put by the poller and the settler; run is its reader
}

// put logs dead messages, and leaves them for the garbage handler. It does not wait for the handler.
func (n *notices) put(dead ...deadLetterNotice) {
	for _, d := range dead {
		n.settings.Log.Error("delayqueue: gave up on a message: it is in garbage", d.msg.Attrs(),
			slog.Int("failures", d.failures), slog.String("error", d.text))
	}
	if n.settings.OnGarbage == nil {
		return
	}
	if dropped := n.waiting.PutAtMost(maxNotices, dead...); dropped > 0 {
		n.settings.Log.Warn(
			"delayqueue: the garbage handler is too slow: it is not told of some messages, which are in garbage all the same",
			slog.Int("messages", dropped))
	}
}

// noticeOfPoison is the notice of dead message i of a tick, which became poison.
func noticeOfPoison(got *script.TickReply, i int) deadLetterNotice {
	dead := &got.Dead[i]
	err := ErrPoison
	record, perr := message.ParseFail(dead.Fail)
	e, eerr := message.DecodeEnvelope(dead.Envelope)
	if dead.Envelope == "" { // the reply had no room for it
		eerr = nil
	}
	if eerr == nil && e.Group.Count > 0 {
		eerr = e.Group.Fill(got.Parts[-1-i])
	}
	if broken := errors.Join(perr, eerr); broken != nil {
		err = fmt.Errorf("%w (%w)", err, broken)
	}
	msg := e.Delivered(dead.ID, max(record.Delivery-1, 1), record.Failures)
	msg.CountdownLeft = missingIn(&got.Extras, -1-i, &e)
	return deadLetterNotice{&msg, record.Failures, message.ErrorText(err), err}
}

// run calls the garbage handler until no notice is left, or until Shutdown's context ends.
func (n *notices) run() {
	done := false
	defer func() {
		if !done { // the user's function has ended this goroutine
			n.waiting.Running.Go(n.run)
		}
	}()
	for notice, ok := n.waiting.One(); ok && n.lifecycle.forceCtx.Err() == nil; notice, ok = n.waiting.One() {
		n.settings.guard("garbage handler", notice.msg.Attrs(), func() {
			n.settings.OnGarbage(n.settings.Base, notice.msg, notice.err)
		})
	}
	done = true
}

// close returns when the garbage handler has been told of everything, or when Shutdown's context ends.
func (n *notices) close() {
	n.waiting.End()
	told := make(chan struct{})
	go func() { n.waiting.Running.Wait(); close(told) }()
	select {
	case <-told:
	case <-n.lifecycle.forceCtx.Done():
	}
}
