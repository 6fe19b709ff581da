package browsertest

import (
	"context"
	"errors"
	"flag"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/web"
)

// looks are those with which each page is looked at.
var looks = []look{
	{width: 1600, language: "en", script: true},
	{width: 360, language: "en", script: false},
	{width: 360, language: "zh-CN", script: true, dark: true},
	{width: 1600, language: "zh-CN", script: false, dark: true},
}

// Each page can be read in each look: nobody is shut out, nothing sticks out, and the browser has nothing to
// complain of.
func TestPages(t *testing.T) {
	for _, l := range looks {
		t.Run(l.name(), func(t *testing.T) {
			tb := newTab(t, l)
			for _, page := range pages(t) {
				tb.open(shop.url+page.address, page.says[l.language[:2]]...)
				tb.fits(page.address)
				tb.accessible(page.address)
			}
		})
	}
}

type pageTest struct {
	address string
	says    map[string][]string // by language
}

func pages(t *testing.T) []pageTest {
	ctx := queuetest.Within(t, queuetest.Patience)
	waits, err := shop.monitor("orders").GetKey(ctx, "order-199000")
	ok(t, err)
	stopped := ops.Bulk{States: []delayqueue.State{delayqueue.StatePending},
		Progress: func(*ops.BulkResult) bool { return false }}
	stopped.Limit, stopped.Contains = 1, "nobody has this"
	job, err := shop.monitor("orders").BulkDelete(ctx, stopped)
	ok(t, err)
	for range 2 {
		p := delayqueue.NewPublisher("invoices", shop.cli)
		_, err := p.Send(ctx, "x", delayqueue.WithLane("customer-42"), delayqueue.WithDelay(time.Hour))
		ok(t, err)
	}
	return []pageTest{
		{"", map[string][]string{"en": {"orders", "mails", "no consumers", "cannot be read"}, "zh": {"orders", "没有消费者"}}},
		{"queue?q=orders", map[string][]string{"en": {"What comes due"}}},
		{"queue?q=reports", nil},
		{"messages?q=orders", map[string][]string{"en": {"pending", "Run now"}, "zh": {"等待", "立即执行"}}},
		{"messages?q=orders&state=garbage&errorhow=contains&error=stock",
			map[string][]string{"en": {"no stock left for item"}}},
		{"messages?q=orders&text=c-55%22", map[string][]string{"en": {"its payload", "of 20", "go on"}, "zh": {"内容", "继续"}}},
		{"messages?q=invoices&state=ready", nil},
		{"message?q=orders&id=" + waits.ID, map[string][]string{"en": {"Where it is", `"order": 199000`, "region"},
			"zh": {"它在哪里"}}},
		{"message?q=orders&as=hex&id=" + waits.ID, nil},
		{"message?q=orders&id=" + shop.garbage(t, 1)[0],
			map[string][]string{"en": {"Given up on", "Requeue"}, "zh": {"被放弃"}}},
		{"consumers?q=orders", map[string][]string{"en": {"Last heard", "/ 8"}, "zh": {"最近上报"}}},
		{"consumers?q=invoices", map[string][]string{"en": {"No consumer is alive"}, "zh": {"没有存活的消费者"}}},
		{"schedules?q=reports", map[string][]string{"en": {"nightly", "Europe/Berlin", "this instant is skipped"},
			"zh": {"跳过这一次"}}},
		{"schedule?q=reports&name=nightly&do=pause", map[string][]string{"en": {"nightly", "Why, for the journal"}}},
		{"queue?q=orders&from=2026-01-02&to=2126-01-02", map[string][]string{"en": {"come due between"}}},
		{"act?q=orders&do=cancel&id=" + waits.ID, map[string][]string{"en": {"Type the queue's name"}, "zh": {"请输入队列名"}}},
		{"act?q=orders&do=postpone&id=" + waits.ID, map[string][]string{"en": {"By how much"}}},
		{"plan?q=orders&state=pending&do=postpone", map[string][]string{"en": {"First they are counted"}}},
		{"plan?q=orders&state=garbage&errorhow=contains&error=stock&do=delete",
			map[string][]string{"en": {"messages, as they were at", "Type the queue's name"}}},
		{"journal?q=reports", map[string][]string{"en": {"bob", "pause"}, "zh": {"暂停"}}},
		{"limits?q=reports", map[string][]string{"en": {"Consumers ask for", "Set them"}, "zh": {"消费者要求", "设置"}}},
		{"lanes?q=reports", map[string][]string{"en": {"No message has a lane."}, "zh": {"没有属于泳道的消息。"}}},
		{"lanes?q=invoices", map[string][]string{"en": {"customer-42", "1 of 1"}, "zh": {"当前轮到"}}},
		{"lanes?q=invoices&lane=customer-42", map[string][]string{"en": {"Give up, and let its lane go on"},
			"zh": {"放弃此消息，让泳道继续"}}},
		{"messages?q=invoices&state=waiting", map[string][]string{"en": {"waiting"}, "zh": {"排队中"}}},
		{"job?q=orders&id=" + job.Entry, map[string][]string{"en": {"stopped"}, "zh": {"已停止"}}},
		{"pause?q=reports", map[string][]string{"en": {"It is paused", "Resume"}, "zh": {"恢复"}}},
	}
}

// Long names, of queues and of people, and characters with hundreds of marks do not widen a page.
func TestLongNamesFit(t *testing.T) {
	ctx := queuetest.Within(t, queuetest.Patience)
	names := []string{strings.Repeat("w", 200), "Z" + strings.Repeat("\u0336\u0322\u0489", 120)}
	page, server, at := shop.serve(web.Config{Authorize: anybody, Queues: names})
	defer page.Close()
	defer server.Close()
	for _, name := range names {
		m := shop.monitor(name).WithOperator(strings.Repeat("author", 30)).WithReason(strings.Repeat("because", 40))
		_, err := delayqueue.NewPublisher(name, shop.cli).Send(ctx, "x", delayqueue.WithKey(strings.Repeat("key", 50)),
			delayqueue.WithLane(strings.Repeat("lane", 50)))
		ok(t, errors.Join(err, m.PauseFor(ctx, time.Hour)))
		defer func() { _ = m.DeleteQueue(context.WithoutCancel(ctx), true) }()
	}
	tb := newTab(t, look{width: 390, language: "en", script: true})
	for _, name := range names {
		q := "?q=" + url.QueryEscape(name)
		for _, address := range []string{"", "queue" + q, "pause" + q, "messages" + q, "journal" + q, "limits" + q,
			"schedules" + q,
			"lanes" + q, "lanes" + q + "&lane=" + strings.Repeat("lane", 50)} {
			tb.open(at + address)
			tb.fits(address[:min(len(address), 20)])
		}
	}
}

var pictures = flag.String("pictures", "",
	"folder for the README's pictures of the page; none: they are made and thrown away")

// TestPictures makes the pictures of the README: the board and a queue, light and dark.
func TestPictures(t *testing.T) {
	dir := *pictures
	if dir == "" {
		dir = t.TempDir()
	}
	for name, dark := range map[string]bool{"light": false, "dark": true} {
		tb := newTab(t, look{width: 1280, language: "en", script: true, dark: dark})
		for page, address := range map[string]string{"board": "", "queue": "queue?q=orders"} {
			tb.open(shop.url + address)
			var png []byte
			tb.run(chromedp.CaptureScreenshot(&png))
			ok(t, os.WriteFile(filepath.Join(dir, "web-"+page+"-"+name+".png"), png, 0o644))
		}
	}
}
