package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// A message behind one that fails again and again is told no instant, but what fails and how, and who may skip it has
// the buttons beside that.
func TestLaneBehindFailure(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	in := delayqueue.WithLane("customer-42")
	front := f.sent("orders", "a", in, delayqueue.WithKey("order-1"), delayqueue.WithRetryCount(1000))
	behind := f.sent("orders", "b", in)
	fail := func(context.Context, *delayqueue.Message) error { return errors.New("<b>no route") }
	q := delayqueue.NewQueue("orders", f.cli, nil).WithHandler(fail).WithRetryDelays(time.Hour).
		WithLogger(slog.New(slog.DiscardHandler))
	q.StartConsume()
	f.is("orders", front, delayqueue.StateRetry)
	q.StopConsume()
	waits := f.get(address("message", "q", "orders", "id", behind)).body
	f.sees(waits, "message order-1 ("+front+") is in front. It has failed 1 of at most 1,001 times, the last time with: "+
		"&lt;b&gt;no route. Its next try is delivery 2 at ", "is given up or is skipped",
		`>the message in front</a>`, `name="id" value="`+front+`"`, `value="skip"`, `value="giveup"`,
		`<legend>The message in front: <a href="message?id=`+front+`&amp;q=orders"><code class="foreign">order-1<`)
	f.sees(f.get("queue?q=orders").body, ", behind others of its lane</dd>")
	f.serve(Config{}) // who may only look
	f.lacks(f.get(address("message", "q", "orders", "id", behind)).body, `value="skip"`, `value="giveup"`)
}

// An operator sees in which lanes messages wait, who has the turn, and lets the next one pass.
func TestLanes(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.sent("orders", "x", delayqueue.WithDelay(time.Hour))
	f.sees(f.get("lanes?q=orders").body, "No message has a lane.")
	f.lacks(f.get("queue?q=orders").body, "state=waiting")
	var ids []string
	for _, payload := range []string{"a", "b", "c"} {
		ids = append(ids, f.sent("orders", payload, delayqueue.WithLane("customer-42"), delayqueue.WithKey("key "+payload)))
	}
	const hostile = "\xff<b>\u202e"
	f.sent("orders", "d", delayqueue.WithLane(hostile, 7), delayqueue.WithDelay(time.Hour))

	f.serve(Config{Authorize: allowed}) // with an empty cache
	list := f.get("lanes?q=orders").body
	f.sees(list, `name="lane"`, ">customer-42<", `href="lanes?lane=customer-42&amp;q=orders"`, ids[0], "ready", "1 of 1",
		"1 of 7")
	f.lacks(list, "<b>\u202e", "\u202e", "\xff")
	if strings.Index(list, "customer-42") > strings.Index(list, `\xff`) {
		t.Error("the lane in which most wait is not the first")
	}
	f.sees(f.get(address("lanes", "q", "orders", "lane", hostile)).body, "1 of 7", "pending")
	for _, nobody := range []string{"nobody", strings.Repeat("x", 300)} {
		f.sees(f.get(address("lanes", "q", "orders", "lane", nobody)).body, "No message of this lane is to be delivered.")
	}
	lane := address("lanes", "q", "orders", "lane", "customer-42")
	f.sees(f.get(lane).body, ids[0], `value="skip"`, `value="giveup"`)
	f.lacks(f.get(lane).body, ids[1])
	waiting := address("messages", "lane", "customer-42", "q", "orders", "state", "waiting")
	f.sees(f.get(lane).body, strings.ReplaceAll(waiting, "&", "&amp;"))
	f.sent("orders", "e", delayqueue.WithLane("customer-4"))
	another := f.sent("orders", "f", delayqueue.WithLane("customer-4"))
	f.sees(f.get(waiting).body, ids[1], ids[2], `name="lane" value="customer-42"`)
	f.lacks(f.get(waiting).body, another)
	_, counted := f.counted(strings.Replace(waiting, "messages", "plan", 1) + "&do=cancel")
	f.sees(counted, "2 messages, as they were at", ">customer-42<")
	f.sees(f.get("messages?q=orders&state=waiting").body, ids[1], ids[2], `state=waiting"`)
	f.sees(f.get("queue?q=orders").body, "state=waiting", "The bars count messages that wait for others",
		", with those behind others of their lanes.")
	f.sees(f.get(address("messages", "q", "orders", "text", "key b")).body, ids[1])
	waits := f.get(address("message", "q", "orders", "id", ids[1])).body
	f.sees(waits, ">customer-42<", "1 at a time", "Due, and then behind", "this one is: waiting",
		"No consumer of the queue is alive", "In lane customer-42 message "+ids[0]+" is in front, and is due, too",
		`href="message?id=`+ids[0]+`&amp;q=orders"`)
	f.sees(f.get(lane).body, "What it waits for", "message "+ids[0]+" is in front")
	f.lacks(waits, `value="skip"`)
	f.sees(f.get(address("message", "q", "orders", "id", ids[0])).body, `value="skip"`)

	f.sees(f.get(address("act", "q", "orders", "do", "skip", "id", ids[0])).body, "Put at the end of its lane", ids[0])
	f.sees(f.did("act", form("q", "orders", "do", "skip", "id", ids[0])), "1 put behind its lane")
	f.is("orders", ids[0], delayqueue.StateWaiting)
	f.sees(f.did("act", form("q", "orders", "do", "giveup", "id", ids[1], "reason", "it is broken")), "1 given up",
		"skipped by ann: it is broken")
	f.is("orders", ids[1], delayqueue.StateGarbage)
	f.sees(f.get("journal?q=orders&lang=zh").body, "跳过", ids[1], "to garbage")
	alone := f.sent("orders", "g", delayqueue.WithLane("alone"))
	f.sent("orders", "h", delayqueue.WithLane("alone"), delayqueue.WithDelay(time.Hour))
	own := address("lanes", "q", "orders", "lane", "alone")
	for _, page := range []string{own, address("message", "q", "orders", "id", alone)} { // nobody would pass
		f.sees(f.get(page).body, `value="giveup"`)
		f.lacks(f.get(page).body, `value="skip"`)
	}
	for id, says := range map[string][]string{
		ids[0]: {"in the state waiting now, in which", strings.ReplaceAll(lane, "&", "&amp;")},
		alone:  {"No message of its lane that is due waits behind it", strings.ReplaceAll(own, "&", "&amp;")},
		"gone": {"There is no such message"},
	} {
		got := f.ask(http.MethodPost, "act", form("q", "orders", "do", "skip", "id", id))
		f.sees(f.wants(http.StatusConflict, got, id), append(says, "<h1>It was not done</h1>")...)
		f.lacks(got.body, "wrong state", "cannot be shown")
	}
	f.wants(http.StatusBadRequest, f.get(address("plan", "q", "orders", "do", "skip", "state", "ready")), "skip of all")
	f.sees(f.get(address("plan", "q", "orders", "do", "postpone", "state", "waiting", "by", "1h0m0s")).body, "Postpone")
	for _, page := range []string{lane, "lanes?q=orders", address("act", "q", "orders", "do", "giveup", "id", ids[2])} {
		for _, english := range englishOf(f.get(page, header("Accept-Language", "zh")).body) {
			t.Errorf("%s says %q", page, english)
		}
	}
}
