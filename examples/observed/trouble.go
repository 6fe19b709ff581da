package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/schedule"
)

// A scene is a queue of -trouble. fill sends its messages, multiplied by size, and starts its consumer.
type scene struct {
	name string
	fill func(s *service, name string, size float64) error
}

// scenes are the queues in which something is to be seen. Others are quiet: quietQueues of them, and hostileNames.
var scenes = []scene{
	{"orders", orders}, {"mails", mails}, {"imports", imports}, {"slow", slow}, {"limited", limited},
	{"paused", paused}, {"nobody", nobody}, {"reports", reports}, {"parcels", parcels}, {"hostile", hostile},
}

const (
	quietQueues = 15
	shards      = 6
)

// makeTrouble fills a Redis that has no queues.
func (s *service) makeTrouble(size float64) error {
	for name, err := range ops.Queues(s.ctx, s.cli) {
		if err != nil {
			return err
		}
		return fmt.Errorf("this Redis has queues, such as %q: -trouble needs one without", name)
	}
	all := scenes
	for i := range quietQueues {
		all = append(all, scene{fmt.Sprintf("quiet-%02d", i+1), quiet})
	}
	for _, name := range hostileNames {
		all = append(all, scene{name, quiet})
	}
	begun := time.Now()
	for _, one := range all {
		s.metrics.Watch(delayqueue.NewMonitor(one.name, s.cli))
		if err := one.fill(s, one.name, size); err != nil {
			return fmt.Errorf("queue %q: %w", one.name, err)
		}
	}
	s.say.Printf("%d queues are there after %v", len(all), time.Since(begun).Round(time.Millisecond))
	return nil
}

// some is a size, which is at least 3 so that there is something to see of all.
func some(n int, size float64) int { return max(3, int(math.Round(float64(n)*size))) }

// queue makes a queue with a handler, which logs nothing: what is wrong is for others to find.
func (s *service) queue(name string, workers int, handle delayqueue.Handler,
	opts ...delayqueue.QueueOption) *delayqueue.DelayQueue {
	return delayqueue.NewQueue(name, s.cli, nil, opts...).WithHandler(handle).WithConcurrent(workers).
		WithDefaultRetryCount(0).WithLogger(slog.New(slog.DiscardHandler))
}

// send sends n messages, which one makes.
func (s *service) send(to *delayqueue.DelayQueue, n int, one func(i int) delayqueue.Outgoing) error {
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i] = one(i)
	}
	_, err := to.SendBatch(s.ctx, batch)
	return err
}

func message(payload string, opts ...delayqueue.MsgOption) delayqueue.Outgoing {
	return delayqueue.Outgoing{Payload: payload, Options: opts}
}

// work takes as long as a handler does, unless that is to end.
func (s *service) work(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// An order is a payload of orders.
type order struct {
	Order    int     `json:"order"`
	Customer int     `json:"customer"`
	Type     string  `json:"type"`
	Total    float64 `json:"total"`
}

// customers is how many have orders, and firstInLane the number of the first order in the lane of customer 42.
const (
	customers   = 500
	firstInLane = 1_000_000
)

// orderTypes: one of them is a part of another, so who asks for ship must not get ship-label.
var orderTypes = []string{"charge", "ship", "ship-label"}

func (o order) message(opts ...delayqueue.MsgOption) delayqueue.Outgoing {
	payload, _ := json.Marshal(o) // it has no field that cannot be written
	return message(string(payload), append(opts,
		delayqueue.WithKey("order-"+strconv.Itoa(o.Order)),
		delayqueue.WithHeader("type", o.Type),
		delayqueue.WithHeader("customer", strconv.Itoa(o.Customer)))...)
}

// orders come due over 30 hours. Those of customer 42 go one after the other, and the first of them cannot be read.
func orders(s *service, name string, size float64) error {
	q := s.queue(name, 8, func(ctx context.Context, msg *delayqueue.Message) error {
		if err := json.Unmarshal([]byte(msg.Payload), new(order)); err != nil {
			return fmt.Errorf("the order cannot be read: %w", err)
		}
		return s.work(ctx, time.Millisecond)
	}).WithRetryDelays(5*time.Second, 10*time.Second, 30*time.Second)
	n := some(150_000, size)
	err := s.send(q, n, func(i int) delayqueue.Outgoing {
		due := 10*time.Minute + 30*time.Hour/time.Duration(n)*time.Duration(i)
		return order{i, i % customers, orderTypes[i%len(orderTypes)], 12.5}.
			message(delayqueue.WithDelay(due), delayqueue.WithRetryCount(5))
	})
	if err != nil {
		return err
	}
	inLane := func(i int) delayqueue.Outgoing {
		return order{firstInLane + i, 42, "ship", 12.5}.
			message(delayqueue.WithLane("customer-42"), delayqueue.WithRetryCount(1000))
	}
	head := inLane(0)
	head.Payload = strings.Replace(head.Payload, "12.5", `"12,50"`, 1)
	if _, err := q.Send(s.ctx, head.Payload, head.Options...); err != nil { // before all others of its lane
		return err
	}
	err = s.send(q, some(50_000, size), func(i int) delayqueue.Outgoing { return inLane(i + 1) })
	s.consume(q)
	s.feed(q, 250*time.Millisecond, func(i int) delayqueue.Outgoing {
		return order{2*firstInLane + i, i % customers, orderTypes[i%len(orderTypes)], 12.5}.message()
	})
	return err
}

// A mail is a payload of mails.
type mail struct {
	To   string `json:"to"`
	Fail string `json:"fail,omitempty"` // the error of the first delivery
}

// mails has three large groups of errors, and newer garbage in 2,000 texts. What is requeued goes well.
func mails(s *service, name string, size float64) error {
	q := s.queue(name, 16, func(ctx context.Context, msg *delayqueue.Message) error {
		var m mail
		if err := json.Unmarshal([]byte(msg.Payload), &m); err != nil {
			return err
		}
		if m.Fail != "" && msg.Delivery == 1 {
			return errors.New(m.Fail)
		}
		return s.work(ctx, 5*time.Millisecond)
	}).WithGarbageRetention(24*time.Hour, 100_000)
	mailOf := func(i int, fail string) delayqueue.Outgoing {
		payload, _ := json.Marshal(mail{fmt.Sprintf("user%d@example.com", i), fail})
		return message(string(payload), delayqueue.WithHeader("customer", strconv.Itoa(i%customers)))
	}
	for _, group := range []struct {
		n    int
		text func(i int) string
	}{
		{2_000, func(int) string { return "smtp 451: greylisted, try again later" }},
		{1_500, func(i int) string { return fmt.Sprintf("dial tcp 10.0.%d.%d:25: i/o timeout", i%4, i%250) }},
		{300, func(i int) string { return fmt.Sprintf("smtp 550: user%d@example.com: no such mailbox", i) }},
		{2_900, mailText},
	} {
		err := s.send(q, some(group.n, size), func(i int) delayqueue.Outgoing { return mailOf(i, group.text(i)) })
		if err != nil {
			return err
		}
	}
	s.consume(q)
	s.feed(q, 200*time.Millisecond, func(n int) delayqueue.Outgoing {
		fail := ""
		if n%50 == 0 {
			fail = "smtp 421: too many connections"
		}
		return mailOf(n, fail)
	})
	return nil
}

// mailText is one of 2,000 texts which differ by words, because numbers do not tell errors apart.
func mailText(i int) string {
	field := []string{"name", "street", "city", "zip", "country", "total", "vat", "order", "date", "link"}
	template := []string{"welcome", "invoice", "reminder", "receipt", "refund", "delay", "pickup", "coupon", "survey",
		"goodbye"}
	language := []string{"de", "fr", "it", "es", "pt", "nl", "pl", "cs", "sv", "fi",
		"da", "nb", "hu", "ro", "bg", "el", "tr", "uk", "ja", "zh"}
	return fmt.Sprintf("template %s in %s has no value for %s",
		template[i/200%10], language[i%20], field[i/20%10])
}

// imports has a message that waits for all rows of an import, two of which are dead.
func imports(s *service, name string, size float64) error {
	q := s.queue(name, 4, func(ctx context.Context, msg *delayqueue.Message) error {
		if strings.Contains(msg.Payload, "31.02.") && msg.Delivery == 1 {
			return fmt.Errorf("%s: there is no such date", msg.Payload)
		}
		return s.work(ctx, time.Millisecond)
	})
	rows := some(500, size)
	_, err := q.Send(s.ctx, "tell the customer that import 42 is done", delayqueue.WithKey("import-42"),
		delayqueue.WithCountdown(rows), delayqueue.WithDelay(24*time.Hour))
	if err != nil {
		return err
	}
	err = s.send(q, rows, func(i int) delayqueue.Outgoing {
		day := i%28 + 1
		if i == rows/4 || i == rows/2 {
			day = 31
		}
		return message(fmt.Sprintf("row %d of import 42: %02d.02.2026", i, day), delayqueue.WithCounts("import-42"))
	})
	s.consume(q)
	return err
}

// slow has two handlers that hang, of four.
func slow(s *service, name string, _ float64) error {
	q := s.queue(name, 4, func(ctx context.Context, msg *delayqueue.Message) error {
		if strings.HasSuffix(msg.Payload, ".tiff") {
			return s.work(ctx, math.MaxInt64)
		}
		return s.work(ctx, 50*time.Millisecond)
	})
	err := s.send(q, 2, func(i int) delayqueue.Outgoing {
		return message(fmt.Sprintf("thumbnail of scan-%d.tiff", i), delayqueue.WithKey(fmt.Sprintf("scan-%d", i)))
	})
	s.consume(q)
	s.feed(q, time.Second, func(n int) delayqueue.Outgoing {
		return message(fmt.Sprintf("thumbnail of photo-%d.jpeg", n))
	})
	return err
}

// limited is as slow as it is meant to be.
func limited(s *service, name string, size float64) error {
	q := s.queue(name, 4, func(ctx context.Context, _ *delayqueue.Message) error {
		return s.work(ctx, 5*time.Millisecond)
	}).WithRateLimit(5, time.Second, 1)
	err := s.send(q, some(5_000, size), func(i int) delayqueue.Outgoing {
		return message(fmt.Sprint("call partner ", i))
	})
	s.consume(q)
	s.feed(q, 250*time.Millisecond, func(n int) delayqueue.Outgoing {
		return message(fmt.Sprint("call partner again ", n))
	})
	return err
}

// paused is paused for a reason.
func paused(s *service, name string, size float64) error {
	q := s.queue(name, 2, func(context.Context, *delayqueue.Message) error { return nil })
	err := s.send(q, some(200, size), func(i int) delayqueue.Outgoing { return message(fmt.Sprint("transfer ", i)) })
	if err != nil {
		return err
	}
	err = ops.Of(delayqueue.NewMonitor(name, s.cli)).WithOperator("ann").
		WithReason("the bank does maintenance, I resume when they call").Pause(s.ctx)
	s.consume(q)
	return err
}

// nobody has messages that are due, and no consumer.
func nobody(s *service, name string, size float64) error {
	return s.send(delayqueue.NewQueue(name, s.cli, nil), some(300, size), func(i int) delayqueue.Outgoing {
		return message(fmt.Sprint("invoice ", i))
	})
}

// quiet has a message that is due in an hour.
func quiet(s *service, name string, _ float64) error {
	_, err := delayqueue.NewQueue(name, s.cli, nil).Send(s.ctx, "later", delayqueue.WithDelay(time.Hour))
	return err
}

// reports has four schedules. The sequence of one of them has been moved on to its end.
func reports(s *service, name string, _ float64) error {
	q := s.queue(name, 2, func(ctx context.Context, _ *delayqueue.Message) error { return s.work(ctx, time.Second) })
	all := schedule.New(q).WithLogger(slog.New(slog.DiscardHandler))
	err := all.SetAll(s.ctx, "reports",
		schedule.Entry{Name: "nightly", Cron: "30 2 * * *", Zone: "Europe/Berlin", Payload: "all of yesterday"},
		schedule.Entry{Name: "hourly", Every: time.Hour, Payload: "last hour"},
		schedule.Entry{Name: "pulse", Every: 20 * time.Second, Payload: "pulse"},
		schedule.Entry{Name: "stock", Every: 30 * time.Second, Payload: "stock of all warehouses"})
	if err != nil {
		return err
	}
	_, err = ops.Of(delayqueue.NewMonitor(name, s.cli)).WithOperator("bob").WithReason("stock was counted twice").
		PassSequence(s.ctx, "schedule/stock", math.MaxInt64)
	if err != nil && !errors.Is(err, delayqueue.ErrNotFound) { // it has sent nothing yet
		return err
	}
	s.metrics.WatchSchedules(all)
	s.metrics.InstrumentSchedules(all)
	s.working.Go(func() { _ = all.Run(s.ctx) }) // its error is that of ctx
	s.consume(q)
	return nil
}

// parcels lies in several shards, and has some garbage in all of them.
func parcels(s *service, name string, size float64) error {
	q := s.queue(name, 4, func(ctx context.Context, msg *delayqueue.Message) error {
		if strings.HasSuffix(msg.Payload, " to nowhere") && msg.Delivery == 1 {
			return errors.New("there is no depot for this address")
		}
		return s.work(ctx, 5*time.Millisecond)
	}, delayqueue.WithShards(shards))
	err := s.send(q, some(2_400, size), func(i int) delayqueue.Outgoing {
		return message(fmt.Sprintf("parcel %d", i), delayqueue.WithKey(fmt.Sprintf("parcel-%d", i)),
			delayqueue.WithHeader("customer", strconv.Itoa(i%customers)),
			delayqueue.WithDelay(10*time.Minute+time.Duration(i)*20*time.Second))
	})
	if err != nil {
		return err
	}
	err = s.send(q, some(600, size), func(i int) delayqueue.Outgoing {
		return message(fmt.Sprintf("parcel %d to nowhere", i))
	})
	s.consume(q)
	s.feed(q, 250*time.Millisecond, func(n int) delayqueue.Outgoing {
		return message(fmt.Sprintf("parcel %d today", n))
	})
	return err
}

// hostileTexts are payloads, keys, headers, lanes and errors that would do harm to a page or a terminal which takes
// them for more than text.
var hostileTexts = []string{
	`<script>alert("payload")</script>`, `"><img src=x onerror=alert(1)>`, `javascript:alert(1)`, `{{.}} ${7*7} %s %n`,
	"\x1b[2J\x1b[31mred\x07", "one\r\ntwo\tthree\x00four", "\u202egnp.exe\u2066", "\xff\xfe not UTF-8",
	`'; FLUSHALL; --`,
	"=cmd|' /C calc'!A1", strings.Repeat("a\u0301\u0300\u0302", 40), strings.Repeat("[", 200_000),
	strings.Repeat("x", 1<<20),
}

// hostile has each text in garbage, where it is the error, and among messages that are due later.
func hostile(s *service, name string, _ float64) error {
	q := s.queue(name, 2, func(_ context.Context, msg *delayqueue.Message) error { return errors.New(msg.Payload) })
	err := s.send(q, 2*len(hostileTexts), func(i int) delayqueue.Outgoing {
		text := hostileTexts[i/2]
		short := text[:min(len(text), 100)]
		m := message(text, delayqueue.WithKey(fmt.Sprint(short, i)), delayqueue.WithHeader(short, short),
			delayqueue.WithLane(strings.ReplaceAll(short, "\x00", "")))
		if i%2 == 1 {
			m.Options = append(m.Options, delayqueue.WithDelay(2*time.Hour))
		}
		return m
	})
	s.consume(q)
	return err
}

// hostileNames are names of queues that the library accepts.
var hostileNames = []string{
	`<script>alert("name")</script>`, `"><img src=x onerror=alert(2)>`, `a&b=c?d#e`, `../../etc/passwd`, `%2e%2e%2f%00`,
	`--all`, `'; rm -rf ~; '`, `$(reboot)`, "\u202egnp.exe", "\u200bzero\u200bwidth\ufeff", "队列 \U0001f4a3",
	strings.Repeat("long", 62) + "er",
}
