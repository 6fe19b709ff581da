package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // a machine may have no zones

	"github.com/redis/go-redis/v9"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// reads is the cookie of a reader in a zone.
func reads(zone string) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: zoneCookie, Value: zone}) }
}

// All times are those of one zone, which is named: what is copied from a list into a field selects just that.
func TestOneZone(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	at := time.Date(2031, 5, 6, 20, 30, 0, 0, time.UTC) // in Shanghai another day
	for i := range 3 {
		f.sent("orders", fmt.Sprint("payload ", i), delayqueue.WithSchedule(at.Add(time.Duration(i)*time.Hour)))
	}
	ok(t, f.monitor("orders").PauseUntil(f.Context(), at))
	for _, c := range []struct{ zone, name, due, field string }{
		{"Asia/Shanghai", "Asia/Shanghai", ">2031-05-07 04:30:00<", "2031-05-07T04:30"},
		{"America/New_York", "America/New_York", ">2031-05-06 16:30:00<", "2031-05-06T16:30"},
		{"", "UTC", ">2031-05-06 20:30:00 UTC<", "2031-05-06T20:30"},
		{"Nowhere/Land", "UTC", ">2031-05-06 20:30:00 UTC<", "2031-05-06T20:30"},
		{"../../etc/passwd", "UTC", ">2031-05-06 20:30:00 UTC<", "2031-05-06T20:30"},
		{"Local", "UTC", ">2031-05-06 20:30:00 UTC<", "2031-05-06T20:30"},
	} {
		as := reads(c.zone)
		list := f.get("messages?q=orders&state=pending", as).body
		f.sees(list, c.due, "From ("+c.name+")", "To ("+c.name+")", "the zone "+c.name, `name="zone" value="`+c.name+`"`)
		some := address("messages", "q", "orders", "state", "pending", "from", c.field, "to", c.field, "zone", c.name)
		got := f.get(some, as).body
		f.sees(got, "payload 0", `value="`+c.field+`"`, "from=2031-05-06T20%3A30%3A00Z")
		f.lacks(got, "payload 1", "payload 2")
		f.sees(f.get(some, reads("Europe/Berlin")).body, "payload 0") // whoever gets the link
		f.sees(f.get("", as).body, "paused until "+strings.Replace(c.field, "T", " ", 1)+" "+c.name)
		f.sees(f.get(address("plan", "q", "orders", "state", "pending", "do", "cancel", "from", c.field), as).body,
			strings.Replace(c.field, "T", " ", 1)+":00 "+c.name)
	}
}

// So are those of a chart.
func TestChartsKeepTheZone(t *testing.T) {
	f := newFixture(t, Config{})
	at := time.Now().Add(90 * time.Minute)
	f.sent("orders", "x", delayqueue.WithSchedule(at))
	zone, err := time.LoadLocation("Asia/Shanghai")
	ok(t, err)
	day := at.In(zone).Format("2006-01-02 15:")
	f.sees(f.get("queue?q=orders", reads("Asia/Shanghai")).body, "<title>"+day, "Asia/Shanghai · ")
}

// What the line of a chart counts is no part of what its bars do.
func TestCaptionsAddUp(t *testing.T) {
	l := languages[0]
	c := &chart{Legend: []legend{{"good", "done"}, {"bad", "failed"}, {"sent", "sent"}},
		bars: []bar{{at: time.Now(), stack: []int64{20, 1}, line: 206_002}, {at: time.Now(), stack: []int64{2, 0}}}}
	if l.draw(c); c.Caption != "done 22, failed 1, sent 206,002" {
		t.Error(c.Caption)
	}
	c = &chart{Legend: []legend{{"first", "a"}, {"second", "b"}},
		bars: []bar{{stack: []int64{3, 4}}, {stack: []int64{1, 1}}}}
	if l.draw(c); c.Caption != "9 in all, at most 7" {
		t.Error(c.Caption)
	}
}

// A replica that takes no writes is no Redis that does not answer, and the board says that something is wrong.
func TestReplicaIsSaid(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.sent("orders", "x")
	f.lacks(f.get("").body, "Redis is in trouble")
	ok(t, f.cli.ReplicaOf(f.Context(), "127.0.0.1", "1").Err())
	f.serve(Config{Authorize: allowed})
	f.sees(f.get("").body, "Redis is in trouble")
	var got reply
	limit := time.Second // it is tried until then: another may be promoted
	testkit.Until(t, "the page says why", func() bool {
		f.page.bounds.request = limit
		limit *= 2
		got = f.ask(http.MethodPost, "pause", form("q", "orders", "do", "pause", "for", "15m0s"))
		return strings.Contains(got.body, "READONLY")
	})
	f.lacks(got.body, "does not answer")
}

// Where something is not found, the pages of its queue are still at hand; those of a queue that is not there are not.
func TestNotFoundKeepsItsPlace(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x")
	got := f.get(address("message", "q", "orders", "id", "01a2064a-88dc-7242-b397-44842642a400"))
	f.sees(f.wants(http.StatusNotFound, got), "Not found", "Pages of this queue", "Back to the queue<")
	f.lacks(f.get("queue?q=none").body, "Pages of this queue")
}

// A user who may not ask how the servers are is asked to once.
func TestBoardAsksNoServerTwice(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x")
	ok(t, f.cli.Do(f.Context(), "ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all", "-info").Err())
	reader := queuetest.ClientWith(t, &redis.Options{Addr: f.server.Addr(), Username: "reader", Password: "secret"})
	p := newPoller(&Handler{cli: reader, bounds: usualBounds})
	for i := range 3 {
		if p.mayAsk != (i == 0) {
			t.Errorf("after %d: %v", i, p.mayAsk)
		}
		if p.mayAsk {
			p.askServers(f.Context(), time.Now())
		}
	}
}

// A character with hundreds of marks is shown with some.
func TestMarksAreBounded(t *testing.T) {
	piled := "Z" + strings.Repeat("\u0336\u0489", 120) + "y"
	if got := shown(piled); got != "Z"+strings.Repeat("\u0336\u0489", maxMarks/2)+"y" {
		t.Errorf("%q", got)
	}
	for _, word := range []string{"Việt", "e\u0301\u0323", "བརྒྱུད", "שָׁלוֹם", "किताब"} {
		if got := shown(word); got != word {
			t.Errorf("%q is shown as %q", word, got)
		}
	}
}
