package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// Results of messages, whatever becomes of those who handle them: a result is that of the delivery which was acked,
// and of no other.
var results = []scenario{
	{
		name:  "results: consumer killed",
		holds: "each is that of the delivery that was acked",
		load:  keeping,
		hit:   (*trial).killConsumer,
		every: time.Second,
		check: (*trial).weighResults,
	},
	{
		name:  "results: replies lost, or cut in the middle",
		holds: "each is that of the delivery that was acked",
		setUp: wired(),
		load:  keeping,
		hit:   (*trial).loseReply,
		every: 20 * time.Millisecond,
		rules: rules{late: usual.Lease + time.Second},
		check: (*trial).weighResults,
	},
}

// keeping lets messages be kept with their results.
func keeping(l *load) { l.Keep = time.Hour }

// resultOf is what a handler says of a delivery.
func resultOf(who string, msg *delayqueue.Message) string {
	if isSum(msg) {
		return strings.Join(msg.Parts, " ")
	}
	return saidOf(who, msg.Delivery)
}

// saidOf is the same of a message that is no sum.
func saidOf(who string, delivery int) string { return fmt.Sprintf("%s %d", who, delivery) }

// weighResults wants each message that was handled to be kept, with the result of the delivery that was acked, whose
// handler came to its end.
func (t *trial) weighResults(v *verdict) {
	state := t.read()
	if state == nil {
		t.Fatal("the queue cannot be read")
	}
	kept, err := t.admin.HGetAll(t.ctx, key("result")).Result()
	if err != nil {
		t.Fatal(err)
	}
	succeeds := map[string]map[string]bool{} // id -> what its handlers said that came to their end
	ids := map[string]*entry{}
	all := t.books.all()
	for i := range all {
		switch e := &all[i]; {
		case e.Kind == sent:
			ids[e.ID] = e
		case e.Kind == ended && e.Word == succeeded:
			if succeeds[e.ID] == nil {
				succeeds[e.ID] = map[string]bool{}
			}
			succeeds[e.ID][saidOf(e.who, e.Delivery)] = true
		}
	}
	ev := evidence{strikes: t.strikes, rules: t.rules}
	for id, said := range succeeds {
		where, sent := state.Where(id), ids[id]
		if where != "done" && (sent == nil || ev.wipedOut(sent) == "") {
			v.problem("message %s was handled, and is in %s", id, where)
		}
		if where != "done" {
			continue
		}
		acked := fmt.Sprint(" ", state.Fail[id].Delivery-1)
		if result := kept[id]; !said[result] || !strings.HasSuffix(result, acked) {
			v.problem("message %s has the result %q; its handlers said %v, and delivery%s was acked", id, result, said, acked)
		}
	}
	if len(state.Done) < len(ids)*9/10 {
		v.problem("%d of %d messages are kept", len(state.Done), len(ids))
	}
}
