package browsertest

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/ops"
)

func (w *world) monitor(queue string) *ops.Queue {
	return ops.Of(delayqueue.NewMonitor(queue, w.cli))
}

// garbage are the ids of some dead orders.
func (w *world) garbage(t *testing.T, n int) (ids []string) {
	t.Helper()
	ctx := queuetest.Within(t, queuetest.Patience) // without one it is tried for two seconds
	page, err := w.monitor("orders").List(ctx, delayqueue.StateGarbage, ops.Filter{Limit: n}, "")
	if err != nil || len(page.Messages) < n {
		t.Fatal(page, err)
	}
	for _, msg := range page.Messages {
		ids = append(ids, msg.ID)
	}
	return ids
}

// is waits until a message is in a state.
func (tb *tab) is(queue, id string, want delayqueue.State) {
	tb.Helper()
	tb.until(fmt.Sprintf("%s is %s", id, want), func() bool {
		msg, err := shop.monitor(queue).Get(tb.ctx, id)
		return err == nil && msg.State == want || err != nil && want == delayqueue.StateGone
	})
}

// Actions of each shape, on one message, some and all, as a person does them: with script at a wide window, and
// without at a narrow one.
func TestActions(t *testing.T) {
	for _, l := range []look{{width: 1600, language: "en", script: true}, {width: 360, language: "en"}} {
		t.Run(l.name(), func(t *testing.T) {
			tb := newTab(t, l)
			for _, action := range []struct {
				name string
				do   func(*tab)
			}{
				{"one message", (*tab).oneMessage}, {"ticked", (*tab).ticked}, {"all that match", (*tab).allThatMatch},
			} {
				t.Run(action.name, func(t *testing.T) {
					tb.T = t
					action.do(tb)
				})
				tb.T = t
			}
		})
	}
}

// sent puts a message into invoices, which nobody consumes.
func (tb *tab) sent(payload string, opts ...delayqueue.MsgOption) string {
	tb.Helper()
	info, err := delayqueue.NewPublisher("invoices", shop.cli).Send(tb.ctx, payload, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return info.ID
}

// oneMessage finds one from the board in two clicks, runs it and deletes another.
func (tb *tab) oneMessage() {
	key := fmt.Sprint("invoice-", time.Now().UnixNano())
	id := tb.sent("a", delayqueue.WithDelay(time.Hour), delayqueue.WithKey(key))
	tb.open(shop.url + "messages?q=invoices")
	tb.fill(`input[name="text"]`, key)
	tb.click(".search button")
	tb.sees("main", "its key")
	tb.click("tbody th a")
	tb.sees("h1", id)
	tb.click(`button[value="run"]`)
	tb.sees("h1", "Run now: 1 message")
	tb.click(".ask button")
	tb.sees("main", "1 made due now")
	tb.is("invoices", id, delayqueue.StateReady)

	tb.click(`button[value="cancel"]`)
	tb.sees("main", "Type the queue's name")
	tb.fill(`input[name="confirm"]`, "invoice")
	tb.click(".ask button")
	tb.sees("main", "Nothing was done")
	tb.until("the refusal", func() bool { return tb.expect("422") })
	tb.is("invoices", id, delayqueue.StateReady)
	tb.open(shop.url + "act?q=invoices&do=cancel&id=" + id)
	tb.fill(`input[name="confirm"]`, "invoices")
	tb.click(".ask button")
	tb.sees("main", "1 canceled")
	tb.is("invoices", id, delayqueue.StateGone)
}

// marked sends n messages with a mark of their own, and opens the list of them.
func (tb *tab) marked(head string, n int) (mark string, ids []string) {
	mark = fmt.Sprint(head, time.Now().UnixNano())
	for i := range n {
		ids = append(ids, tb.sent(fmt.Sprint(mark, " ", i), delayqueue.WithDelay(time.Hour)))
	}
	tb.open(shop.url + "messages?q=invoices&state=pending&contains=" + url.QueryEscape(mark))
	return mark, ids
}

// ticked postpones two of three.
func (tb *tab) ticked() {
	_, ids := tb.marked("mark-", 3)
	for _, id := range ids[:2] {
		tb.click(`input[value="` + id + `"]`)
	}
	tb.click(`button[value="postpone"]`)
	tb.sees("h1", "Postpone: 2 messages")
	tb.click(".ask button")
	tb.sees("main", "2 postponed")
	for i, id := range ids {
		msg, err := shop.monitor("invoices").Get(tb.ctx, id)
		if err != nil {
			tb.Fatal(err)
		}
		if postponed := msg.At.Sub(msg.Due) > time.Minute ||
			time.Until(msg.At) > time.Hour+time.Minute; postponed != (i < 2) {
			tb.Errorf("message %d is due at %v, was at %v", i, msg.At, msg.Due)
		}
	}
}

// allThatMatch deletes what was counted, and no more.
func (tb *tab) allThatMatch() {
	mark, ids := tb.marked("bulk-", 12)
	tb.click(".all a.danger")
	tb.sees("main", "12 messages, as they were at")
	later := tb.sent(mark, delayqueue.WithDelay(time.Hour))
	tb.fill(`input[name="confirm"]`, "invoices")
	tb.click(".ask button")
	tb.sees("main", "finished: 12 done")
	tb.is("invoices", ids[0], delayqueue.StateGone)
	tb.is("invoices", later, delayqueue.StatePending)
}
