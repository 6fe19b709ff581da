package web

import (
	"context"
	"errors"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

// follow asks for the first link of a page that matches.
func (f *fixture) follow(page, link string) string {
	f.Helper()
	to := regexp.MustCompile(link).FindStringSubmatch(page)
	if to == nil {
		f.Fatalf("no link %s in %s", link, page)
	}
	return f.wants(http.StatusOK, f.get(html.UnescapeString(to[1])), to[1])
}

// spanOfTime is the address of a page about a span of time.
func spanOfTime(page string, from, to time.Time) string {
	return address(page, "q", "orders", "from", from.UTC().Format("2006-01-02T15:04:05.000"), "to",
		to.UTC().Format("2006-01-02T15:04:05.000"), "zone", "UTC")
}

// A reader asks what comes due in a span of time, and gets to these messages, without those at its end.
func TestComesDueBetween(t *testing.T) {
	f := newFixture(t, Config{})
	at := time.Now().Add(26 * time.Hour).Truncate(time.Hour)
	first, second := f.sent("orders", "a", delayqueue.WithSchedule(at)),
		f.sent("orders", "b", delayqueue.WithSchedule(at.Add(time.Hour-time.Millisecond)))
	third := f.sent("orders", "c", delayqueue.WithSchedule(at.Add(time.Hour)))
	page := f.get(spanOfTime("queue", at, at.Add(time.Hour))).body
	f.sees(page, "2 come due between "+at.UTC().Format("2006-01-02 15:04")+" UTC and ")
	list := f.follow(page, `href="(messages\?[^"]+)">for the first time`)
	f.sees(list, first, second)
	f.lacks(list, third)
	bar := f.follow(page, `<a href="(messages\?[^"]+)"[^>]*><g><title>[^<]* · for the first time [12] `)
	if f.sees(bar, "state=pending"); !strings.Contains(bar, first) && !strings.Contains(bar, third) {
		t.Errorf("the bar leads to %s", bar)
	}
	f.follow(page, `<td class="num"><a href="(messages\?[^"]+)">[12]</a></td>`)
	for _, bad := range []string{
		spanOfTime("queue", at, at.Add(-time.Hour)), "queue?q=orders&from=2026-01-02", "queue?q=orders&from=x&to=y",
		"journal?q=orders&to=x", "messages?q=orders&state=xxx",
	} {
		f.wants(http.StatusBadRequest, f.get(bad), bad)
	}
}

// Of an hour that is past, a reader sees what happened, and gets to its garbage and its acts.
func TestHappenedBetween(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.consume("orders", func(context.Context, *delayqueue.Message) error {
		return errors.Join(delayqueue.ErrSkipRetry, errors.New("no such customer"))
	})
	id := f.sent("orders", "order 7")
	f.is("orders", id, delayqueue.StateGarbage)
	ok(t, f.monitor("orders").WithReason("look into it").Pause(f.Context()))
	now := time.Now()
	var page string
	f.eventually("it is in the history", func() bool {
		page = f.get(spanOfTime("queue", now.Add(-time.Hour), now.Add(time.Minute))).body
		return strings.Contains(page, "what was given up on then")
	})
	garbage := f.follow(page, `href="(messages\?[^"]+)">what was given up on then`)
	f.sees(garbage, id, "order 7", "no such customer")
	f.sees(f.follow(page, `<td class="num"><a href="(messages\?[^"]+state=garbage[^"]+)">1</a></td>`), id)
	f.sees(f.follow(page, `href="(journal\?[^"]*from[^"]+)">`), "look into it", `name="from" value="`)
	for _, empty := range []string{spanOfTime("journal", now.Add(-time.Hour), now.Add(-time.Minute)),
		spanOfTime("journal", now.Add(time.Minute), now.Add(time.Hour))} {
		f.sees(f.get(empty).body, "Nobody has acted on this queue by hand then.")
	}
}

// The last 30 days are not fewer than the last 24 hours, although they are read at other times.
func TestDaysHaveTheirHours(t *testing.T) {
	today := time.Now().UTC().Truncate(24 * time.Hour)
	hours := []ops.Tally{{Start: today.Add(-time.Hour), Sent: 5}, {Start: today, Sent: 3},
		{Start: today.Add(time.Hour), Sent: 4}}
	days := []ops.Tally{{Start: today.Add(-24 * time.Hour), Sent: 90}, {Start: today, Sent: 6}}
	if got := withHours(days, hours); got[0].Sent != 90 || got[1].Sent != 7 || !got[1].Start.Equal(today) ||
		days[1].Sent != 6 {
		t.Errorf("%+v of %+v", got, days)
	}
}

// The page of consumers says whose message each handler has, and which handlers hang.
func TestConsumersPage(t *testing.T) {
	f := newFixture(t, Config{HungAfter: time.Millisecond})
	end := make(chan struct{})
	f.consume("orders", func(context.Context, *delayqueue.Message) error { <-end; return nil })
	defer close(end)
	id := f.sent("orders", "order 7", delayqueue.WithKey("k-7"), delayqueue.WithHeader("tenant", "acme"))
	var page string
	f.eventually("the handler runs", func() bool {
		page = f.get("consumers?q=orders").body
		return strings.Contains(page, "k-7") && strings.Contains(page, "runs for more than")
	})
	f.sees(page, id, "tenant=acme", "order 7")
	f.serve(Config{Payload: func(string, *ops.MessageStatus) string { return "hidden" }})
	f.eventually("its payload is hidden", func() bool {
		page = f.get("consumers?q=orders").body
		return strings.Contains(page, "k-7") && strings.Contains(page, "hidden")
	})
	f.lacks(page, "order 7", "runs for more than")
}
