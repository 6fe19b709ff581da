package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// An operator sees what limits a queue has, sets them, and takes them back; the journal has who and why.
func TestLimits(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.sent("orders", "a", delayqueue.WithDelay(time.Hour))
	post := func(pairs ...string) reply {
		return f.ask(http.MethodPost, "limits", form(append([]string{"q", "orders"}, pairs...)...))
	}
	set := func(want ops.Limits) {
		t.Helper()
		l, err := f.monitor("orders").Limits(f.Context())
		if err != nil || l.Set != want {
			t.Errorf("%+v is set, want %+v; %v", l.Set, want, err)
		}
	}
	page := address("limits", "q", "orders")
	f.sees(f.get("queue?q=orders").body, `href="limits?q=orders"`)
	f.sees(f.get(page).body, `name="rate"`, `name="per"`, `name="burst"`, `name="concurrency"`, `name="do" value="set"`)
	f.lacks(f.get(page).body, "Take back what was set", "Lift the throttle")
	for _, bad := range [][]string{
		{"do", "set", "rate", "0", "per", "1s"}, {"do", "set", "rate", "-1", "per", "1s"},
		{"do", "set", "rate", "x", "per", "1s"},
		{"do", "set", "rate", "9", "per", "soon"}, {"do", "set", "rate", "9"}, {"do", "set", "burst", "5", "per", "1s"},
		{"do", "set", "rate", "9", "per", "1s", "burst", "0"}, {"do", "set", "concurrency", "0"},
		{"do", "set", "concurrency", "2147483648"}, {"do", "set", "concurrency", "99999999999999999999"}, {"do", "x"}, {},
	} {
		f.wants(http.StatusBadRequest, post(bad...), bad)
	}
	set(ops.Limits{})
	got := post("do", "set", "rate", "100", "per", "1s", "burst", "10", "concurrency", " 5 ", "reason",
		"partner asks us to")
	f.sees(f.get(got.header.Get("Location")).body, "The limits are set.",
		">100 in 1 s, at most 10 at once<", ">5 at a time<", "Take back what was set", `name="do" value="clear"`)
	set(ops.Limits{Rate: 100, Per: time.Second, Burst: 10, Concurrency: 5})
	f.sees(f.get(page+"&lang=zh").body, "100 条 / 1 秒", "撤销手动设置")
	post("do", "set", "rate", "7", "per", "24h0m0s", "burst", "")
	set(ops.Limits{Rate: 7, Per: 24 * time.Hour, Burst: 1})
	if _, err := f.monitor("orders").SetLimits(f.Context(),
		ops.Limits{Rate: 1, Per: 90*time.Minute + time.Second, Burst: 1}); err != nil {
		t.Fatal(err)
	}
	f.sees(f.get(page).body, `<option value="1h30m1s" selected>1h30m1s</option>`) // of others it stays as it is
	got = post("do", "clear")
	f.sees(f.get(got.header.Get("Location")).body, "The limits are those that consumers ask for")
	set(ops.Limits{})
	f.eventually("it is in the journal", func() bool {
		body := f.get(address("journal", "q", "orders")).body
		return strings.Contains(body, "partner asks us to") && strings.Count(body, ">ann<") == 3 &&
			strings.Contains(body, "set limits")
	})
}

// What waits for a limit is told apart from what nobody gets to, however long it has been waiting.
func TestVerdictOfALimit(t *testing.T) {
	f := newFixture(t, Config{Queues: []string{"orders"}})
	first := f.sent("orders", "a")
	ok(t, errOf(f.monitor("orders").SetLimits(f.Context(), ops.Limits{Concurrency: 1})))
	end := make(chan struct{})
	f.consume("orders", func(context.Context, *delayqueue.Message) error { <-end; return nil })
	defer close(end)
	f.is("orders", first, delayqueue.StateUnack)
	id := f.sent("orders", "b")
	if err := f.cli.ZAdd(f.Context(), "{dq:orders}:pending",
		redis.Z{Score: float64(time.Now().Add(-time.Hour).UnixMicro()), Member: id}).
		Err(); err != nil {
		t.Fatal(err)
	}
	f.eventually("it waits for the limit", func() bool {
		c, err := f.monitor("orders").Counts(f.Context())
		return err == nil && c.Limited
	})
	for _, page := range []string{"", "queue?q=orders"} {
		f.eventually("the page says so", func() bool {
			return strings.Contains(f.get(page).body, "waits for its limit since")
		})
		f.lacks(f.get(page).body, " behind<")
	}
	f.sees(f.get(address("limits", "q", "orders", "lang", "zh")).body, "有消息因限流等待")
}

// A throttle is lifted.
func TestLiftThrottle(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.sent("orders", "429")
	f.consume("orders", func(context.Context, *delayqueue.Message) error {
		return delayqueue.Throttle(time.Hour, errors.New("429"))
	})
	throttled := func() bool {
		c, err := f.monitor("orders").Counts(f.Context())
		return err == nil && !c.ThrottledUntil.IsZero()
	}
	f.eventually("it is throttled", throttled)
	f.sees(f.get("limits?q=orders").body, "A handler has throttled it", "Lift the throttle", "Set them")
	f.page.cfg.Authorize = nil
	body := f.get("limits?q=orders").body
	f.sees(body, "A handler has throttled it", "Consumers ask for")
	f.lacks(body, "Lift the throttle", "Set them", "<form method")
	f.page.cfg.Authorize = allowed
	for i, says := range []string{"The throttle is lifted", "The queue was not throttled any more"} {
		got := f.ask(http.MethodPost, "limits", form("q", "orders", "do", "lift", "reason", "they are back"))
		if f.sees(f.get(got.header.Get("Location")).body, says); throttled() {
			t.Error("it is throttled still", i)
		}
	}
	f.eventually("it is in the journal, once", func() bool {
		body := f.get(address("journal", "q", "orders")).body
		return strings.Count(body, "they are back") == 1 && strings.Contains(body, "lift throttle")
	})
}
