package delayqueue

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"syscall"
	"time"
)

// This file says how many bytes a fetch asks for. A reply that does not come through, for the line is slow
// or a limit of the server's cuts it, is asked for again with less in it, and what has no room goes back to other
// fetches. A message that does not come through although it is alone counts a loss.

const (
	smallReply = 64 << 10 // what is asked for once a reply did not come through
	aloneTries = 2        // how often one message may fail to come through alone until that is a loss
)

// receiving is how one fetch is brought through.
type replyBudget struct {
	nextBytes   int // of the next attempt; 0: say only what the call holds, which shows whether anything comes through
	lostReplies int // replies that did not come through
	heldKnown   bool
	lostAlone   int // of them, those of one message, on a line that works
}

// failed takes an attempt that failed.
func (b *replyBudget) failed(err error) {
	if b.nextBytes == 0 || !replyLost(err) {
		return
	}
	if b.heldKnown {
		b.lostAlone++
	}
	if b.lostReplies++; b.lostReplies == 1 && !timedOut(err) { // the connection was cut, and perhaps by chance
		return
	}
	b.lostReplies = max(b.lostReplies, 2)
	if b.nextBytes = min(b.nextBytes/2, smallReply); b.heldKnown || b.lostReplies > 2 {
		b.nextBytes = 0
	}
}

// answered takes an answer, and says whether the call is over.
func (b *replyBudget) answered(got *fetched) bool {
	if len(got.held) == 0 || len(got.held) == 1 && b.lostAlone >= aloneTries {
		return true
	}
	b.heldKnown, b.nextBytes = true, 1
	return false
}

// replyLost tells a reply that did not come through from a server that cannot be reached.
func replyLost(err error) bool {
	if unsent(err) {
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || timedOut(err)
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// hopeless is how many attempts are made for a fetch that need not be answered, for the pool may
// hold dead connections.
const optionalAttempts = 3

// fetch repeats one call until Redis answers, or until a lease after the run stopped: then
// what it may have handed out is lost anyway. A run that stops does not wait for a fetch that
// can have handed out nothing. asked is when the attempt began that was answered.
func (c *consumer) fetch(a ask) (got fetched, asked time.Time, err error) {
	c.callers[0].next()
	a.holds = c.lastAttempts.Load() > 0
	arrived := false // perhaps
	rc := replyBudget{nextBytes: c.bytesFor()}
	for over := false; !over && err == nil; over = rc.answered(&got) {
		err = c.untilAnswered("fetch", func() (err error) {
			asked, a.bytes, a.probe = time.Now(), rc.nextBytes, rc.nextBytes == 0
			if got, err = c.store.fetch(c.redisCtx, c.callers[0], a, &c.fetches); err != nil {
				rc.failed(err)
				c.renewCaller(0, err)
			}
			return err
		}, func(n int, err error) bool {
			arrived = arrived || !unsent(err)
			return !c.stopping() || arrived && a.want > 0 || n < optionalAttempts
		})
	}
	if c.nextReplyBytes = min(2*c.nextReplyBytes, maxBatchBytes); rc.lostReplies > 0 {
		c.nextReplyBytes = smallReply
	}
	return got, asked, err
}

// bytesFor is how many bytes the next fetch asks for.
func (c *consumer) bytesFor() int {
	n := c.nextReplyBytes
	if c.maxBytes > 0 {
		n = min(n, max(c.maxBytes-int(c.heldBytes.Load()), 1))
	}
	return n
}

// renumber gives the loop (0) or the settler (1) a new caller if somebody else has written into state what its last
// call was, or what it came to: a repeat under the old number would be refused, or not be understood, for ever.
func (c *consumer) renewCaller(i int, err error) {
	if stale(err) || errors.Is(err, ErrBadReply) {
		c.log.Error("delayqueue: another program has changed what this queue remembers of its calls", slog.Any("error", err))
		c.callers[i] = newCaller()
		c.callers[i].next()
	}
}

var errNotReceived = errors.New("the message does not come through")

// notReceived counts a loss for a message that does not come through.
func (c *consumer) countNotReceived(h heldMessage, at time.Time) {
	record, err := parseFail(h.fail)
	if err != nil {
		record = failRecord{}
	}
	d := &delivery{tag: h.tag, key: h.key, failures: record.failures, losses: record.losses, fetched: at}
	d.id, d.number = splitTag(h.tag)
	d.msg = Message{ID: d.id, Key: h.key, Delivery: d.number, Failures: d.failures}
	o := outcome{d: d, kind: outcomeRetry, failures: d.failures, losses: d.losses + 1, text: errNotReceived.Error()}
	o.delay = time.Duration(min(o.losses, 12)) * (5*time.Second + rand.N(5*time.Second))
	c.log.Error("delayqueue: a message does not come through: the line is too slow for it within a lease, or a limit of the server's cuts it",
		d.attrs(), slog.Int("bytes", h.size), slog.Int("losses", o.losses))
	if o.losses >= c.agreed.maxLosses {
		o.kind, o.err = outcomeGarbage, errors.Join(ErrPoison, errNotReceived)
		o.text = errorText(o.err)
	}
	c.addHeld([]*delivery{d})
	if d.claim(fateSettled) {
		c.outbox.put(o)
	}
}
