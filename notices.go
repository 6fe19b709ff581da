package delayqueue

import (
	"errors"
	"fmt"
	"log/slog"
)

// A deadLetterNotice is a message that went to garbage, for the garbage handler.
type deadLetterNotice struct {
	msg      *Message
	failures int
	err      error // why
}

// maxNotices is how many messages may wait for the garbage handler.
const maxNotices = 1000

// notices report messages that went to garbage to the log and, one after the other, to the garbage handler.
type notices struct {
	settings  *settings
	lifecycle *lifecycle
	waiting   mailbox[deadLetterNotice] // put by the poller and the settler; run is its reader
}

// put does not wait for the handler.
func (n *notices) put(dead ...deadLetterNotice) {
	for _, d := range dead {
		n.settings.log.Error("delayqueue: gave up on a message: it is in garbage", d.msg.attrs(),
			slog.Int("failures", d.failures), slog.String("error", errorText(d.err)))
	}
	if n.settings.onGarbage == nil {
		return
	}
	if dropped := n.waiting.putAtMost(maxNotices, dead...); dropped > 0 {
		n.settings.log.Warn("delayqueue: the garbage handler is too slow: it is not told of some messages, which are in garbage all the same",
			slog.Int("messages", dropped))
	}
}

// noticeOfPoison is that of a message that became poison in a fetch; parts are those of a group but for the first.
func noticeOfPoison(dead deadMessage, parts []string) deadLetterNotice {
	err := ErrPoison
	record, perr := parseFail(dead.fail)
	e, eerr := decodeEnvelope(dead.envelope)
	if dead.envelope == "" { // there was no room for it in the reply
		eerr = nil
	}
	if eerr == nil && e.group.count > 0 {
		eerr = e.group.fill(parts)
	}
	if broken := errors.Join(perr, eerr); broken != nil {
		err = fmt.Errorf("%w (%w)", err, broken)
	}
	msg := e.message(dead.id, max(record.delivery-1, 1), record.failures)
	return deadLetterNotice{&msg, record.failures, err}
}

// run calls the garbage handler until there is nothing to tell it, or until nobody waits for it any more.
func (n *notices) run() {
	done := false
	defer func() {
		if !done { // the user's function has ended this goroutine
			n.waiting.running.Go(n.run)
		}
	}()
	for {
		notice, ok := n.waiting.one()
		if !ok || n.lifecycle.forceCtx.Err() != nil {
			done = true
			return
		}
		n.settings.guard("garbage handler", notice.msg.attrs(), func() { n.settings.onGarbage(n.settings.base, notice.msg, notice.err) })
	}
}

// close returns when the handler has been told of everything, or when Shutdown's context ends.
func (n *notices) close() {
	n.waiting.close()
	told := make(chan struct{})
	go func() { n.waiting.running.Wait(); close(told) }()
	select {
	case <-told:
	case <-n.lifecycle.forceCtx.Done():
	}
}
