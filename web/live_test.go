package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// A listener is an open page.
type listener struct {
	f     *fixture
	lines *bufio.Reader
	close func()
}

func (f *fixture) listen(path string) *listener {
	f.Helper()
	ctx, cancel := context.WithCancel(queuetest.WithTimeout(f))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.http.URL+"/queues/"+path, nil)
	ok(f, err)
	transport := &http.Transport{}
	got, err := transport.RoundTrip(r)
	ok(f, err)
	l := &listener{f: f, lines: bufio.NewReader(got.Body), close: func() {
		cancel()
		_ = got.Body.Close()
		transport.CloseIdleConnections()
	}}
	f.Cleanup(l.close)
	if kind := got.Header.Get("Content-Type"); got.StatusCode != http.StatusOK || kind != "text/event-stream" {
		f.Fatalf("%s: %d %s", path, got.StatusCode, kind)
	}
	return l
}

// next is the next event.
func (l *listener) next() (n news) {
	l.f.Helper()
	for {
		line, err := l.lines.ReadString('\n')
		if err != nil {
			l.f.Fatalf("the feed ended: %v", err)
		}
		if text, found := strings.CutPrefix(line, "data: "); found {
			ok(l.f, json.Unmarshal([]byte(text), &n))
			return n
		}
	}
}

// until is the next event of which this is true.
func (l *listener) until(ok func(news) bool) news {
	l.f.Helper()
	for {
		if n := l.next(); ok(n) {
			return n
		}
	}
}

// ends waits for the end of the feed.
func (l *listener) ends() {
	for err := error(nil); err == nil; {
		_, err = l.lines.ReadString('\n')
	}
}

func TestFeed(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x", delayqueue.WithDelay(time.Hour))
	l := f.listen("live?page=&lang=en")
	first := l.next()
	f.sees(first.Parts["rows"], ">orders<", `<a href="messages?q=orders"><span>1</span></a>`)
	f.sees(first.Parts["summary"], "All is well. Queues: 1")
	f.sent("orders", "y", delayqueue.WithDelay(time.Hour))
	then := l.until(func(n news) bool { return strings.Contains(n.Parts["rows"], "<span>2</span>") })
	if !then.At.After(first.At) {
		t.Error("what is new is not newer")
	}
	if _, ok := then.Parts["summary"]; ok {
		t.Error("what has not changed is sent again")
	}
	f.sees(f.listen("live?page=queue&q=orders&lang=zh").next().Parts["standing"], "没有消费者")
}

// While Redis is away, an open page is told so, and shows no old numbers as fresh.
func TestFeedWhileRedisIsAway(t *testing.T) {
	f := newFixture(t, Config{Queues: []string{"orders"}})
	f.page.bounds = hasty
	f.sent("orders", "x", delayqueue.WithDelay(time.Hour))
	l := f.listen("live?page=")
	l.until(func(n news) bool { return strings.Contains(n.Parts["rows"], "<span>1</span>") })
	f.server.Pause()
	gone := l.until(func(n news) bool { return strings.Contains(n.Parts["rows"], "Redis does not answer") })
	f.lacks(gone.Parts["rows"], "<span>1</span>")
	f.server.Resume()
	l.until(func(n news) bool { return strings.Contains(n.Parts["rows"], "<span>1</span>") })
}

// A page says when it is no longer fed: what says so is there, and the script has what it needs.
func TestPageCanTurnGrey(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x")
	f.sees(f.get("").body, `id="stale" role="status" hidden`, "This page has not been fed since {at}", `data-feed="live?`,
		`id="asof"><time datetime="`)
	f.sees(f.get("style.css").body, ".old main")
	f.sees(f.get("script.js").body, "classList.toggle('old'", "EventSource")
}

// Nothing is read while nobody looks.
func TestPollerStops(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x")
	running := func() bool {
		f.page.poller.mu.Lock()
		defer f.page.poller.mu.Unlock()
		return f.page.poller.running
	}
	if running() {
		t.Error("it runs before anybody has looked")
	}
	l := f.listen("live?page=")
	l.next()
	if !running() {
		t.Error("it does not run while somebody looks")
	}
	l.close()
	f.eventually("it ends, because nobody looks", func() bool { return !running() })
	if n, _ := f.scripts(func() { time.Sleep(2 * patient.interval) }); n != 0 {
		t.Errorf("%d calls while nobody looked", n)
	}
	f.sees(f.get("").body, ">orders<") // and it starts again
}

// scripts is how many scripts clients call meanwhile, and how long Redis works on them.
func (f *fixture) scripts(meanwhile func()) (calls int, redis time.Duration) {
	f.Helper()
	ok(f, f.cli.ConfigResetStat(f.Context()).Err())
	meanwhile()
	stats, err := f.cli.InfoMap(f.Context(), "commandstats").Result()
	ok(f, err)
	for name, text := range stats["Commandstats"] {
		var n, us int
		if strings.HasPrefix(name, "cmdstat_eval") { // which has what the script calls
			ok(f, errOf(fmt.Sscanf(text, "calls=%d,usec=%d", &n, &us)))
		}
		calls += n
		redis += time.Duration(us) * time.Microsecond
	}
	return calls, redis
}

// TestManyPagesCostWhatOneCosts: sixty pages are fed by one round, and by the cache. Without it they would cost four
// times what the first page and the round cost; on a slow machine some of it gets old meanwhile.
func TestManyPagesCostWhatOneCosts(t *testing.T) {
	f := newFixture(t, Config{})
	f.page.bounds.interval = time.Hour
	for _, name := range []string{"orders", "mails", "reports"} {
		f.sent(name, "x", delayqueue.WithDelay(time.Hour))
	}
	one, _ := f.scripts(func() { f.listen("live?page=queue&q=orders").next() })
	all, _ := f.scripts(func() {
		for i := range 60 {
			f.listen([]string{"live?page=queue&q=orders", "live?page=&lang=zh"}[i%2]).next()
		}
	})
	f.page.poller.mu.Lock()
	defer f.page.poller.mu.Unlock()
	if rounds := f.page.poller.rounds; rounds != 1 || one == 0 || all > 2*one {
		t.Errorf("%d calls for one page, %d for 60 more, in %d rounds", one, all, rounds)
	}
}

// All feeds are bounded, and those of one visitor, so that nobody takes the feeds of all others.
func TestFeedsAreBounded(t *testing.T) {
	f := newFixture(t, Config{Authorize: func(r *http.Request, _ Action, _ string) (string, error) {
		return r.Header.Get("X-User"), nil
	}})
	here := (&request{Request: &http.Request{RemoteAddr: "127.0.0.1:5"}}).visitor()
	who := func(i int) string { return []string{here, "actor ann", strconv.Itoa(i)}[min(i/maxTheirs, 2)] }
	for i := range maxClients {
		ok(t, f.page.clients.enter(who(i)))
	}
	full := f.get("live?page=", header("X-User", "bob"))
	if full.code != http.StatusServiceUnavailable || full.header.Get("Retry-After") == "" {
		t.Errorf("%d %v", full.code, full.header)
	}
	for _, who := range []string{"", "ann"} {
		f.sees(f.wants(http.StatusTooManyRequests, f.get("live?page=", header("X-User", who)), who),
			"You have too many pages open")
	}
	f.page.clients.leave(who(0))
	f.listen("live?page=").close()
	for i := range maxClients - 1 {
		f.page.clients.leave(who(i + 1))
	}
	f.eventually("no visitor is remembered", func() bool {
		f.page.clients.mu.Lock()
		defer f.page.clients.mu.Unlock()
		return len(f.page.clients.theirs) == 0
	})
}

// Close ends the feeds, and waits for all.
func TestCloseEndsFeeds(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x")
	l := f.listen("live?page=")
	l.next()
	f.page.Close()
	l.ends()
	f.wants(http.StatusServiceUnavailable, f.get(""))
	f.page.Close() // again is no harm
}

// Who may not look any more is not fed any more.
func TestFeedIsAuthorizedAnew(t *testing.T) {
	var gone atomic.Bool
	f := newFixture(t, Config{Authorize: func(*http.Request, Action, string) (string, error) {
		if gone.Load() {
			return "", errors.New("no")
		}
		return "ann", nil
	}})
	f.sent("orders", "x")
	l := f.listen("live?page=queue&q=orders")
	l.next()
	gone.Store(true)
	l.ends()
	f.wants(http.StatusForbidden, f.get("live?page=queue&q=orders"))
}

// Close waits for a form that is at work, and ends a page that is.
func TestCloseWaitsForRequests(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	begun, ended := make(chan struct{}, 2), atomic.Int32{}
	f.page.routes["slow"] = &route{name: "slow", file: "health", act: Look,
		load: func(ctx context.Context, _ *request) (any, error) {
			begun <- struct{}{}
			<-ctx.Done()
			ended.Add(1)
			return nil, ctx.Err()
		},
		post: func(context.Context, *request) (string, error) {
			begun <- struct{}{}
			<-f.page.done.Done()
			ended.Add(1)
			return "./", nil
		}}
	codes := make(chan int, 2)
	go func() { codes <- f.get("slow").code }()
	go func() { codes <- f.ask(http.MethodPost, "slow", "x=1").code }()
	<-begun
	<-begun
	f.page.Close()
	if n := ended.Load(); n != 2 {
		t.Errorf("%d of 2 have ended", n)
	}
	if a, b := <-codes, <-codes; a+b != http.StatusSeeOther+http.StatusServiceUnavailable {
		t.Errorf("%d, %d", a, b)
	}
}

func TestFeedIsOfAPageThatIsFed(t *testing.T) {
	f := newFixture(t, Config{})
	for _, path := range []string{"live?page=nothing", "live?page=queue", "live?page=queue&q="} {
		f.wants(http.StatusNotFound, f.get(path), path)
	}
}

// Names that somebody makes up do not fill the memory.
func TestCacheIsBounded(t *testing.T) {
	for _, long := range []int{1, 100_000} {
		c := &cache{}
		for i := range 3 * cacheMost {
			one, mine := c.take(fmt.Sprint(i, strings.Repeat("x", long)))
			if one == nil || !mine || len(c.kept) > cacheMost || c.keys > cacheKeys {
				t.Fatalf("%d: %v, %v; %d keys of %d bytes", i, one, mine, len(c.kept), c.keys)
			}
		}
		all := 0
		for key := range c.kept {
			all += len(key)
		}
		if all != c.keys {
			t.Errorf("keys of %d bytes, said to be %d", all, c.keys)
		}
	}
}

var million = flag.Int("million", 5_000, "how many messages TestMillion has")

// TestMillion: a page of a large queue takes some scripts, and not more for more messages. It prints how long Redis
// works on them.
func TestMillion(t *testing.T) {
	f := newFixture(t, Config{})
	id := f.fill("large", *million)
	t.Logf("%d messages, 4,000 of them garbage", *million)
	in := []any{"q", "large"}
	for _, page := range []string{
		"", address("queue", in...), address("messages", in...), address("messages", append(in, "state", "garbage")...),
		address("messages", append(in, "text", "payload-"+strconv.Itoa(*million/2))...),
		address("messages", append(in, "text", "nowhere")...),
		address("message", append(in, "id", id)...), address("consumers", in...), address("journal", in...), "health",
	} {
		f.page.Close()
		f.serve(Config{}) // which remembers nothing
		calls, redis := f.scripts(func() {
			if got := f.get(page); got.code != 200 {
				t.Fatalf("%s: %d %s", page, got.code, got.body)
			}
		})
		t.Logf("%d scripts, %v of Redis: %s", calls, redis, page)
		if calls > 200 {
			t.Errorf("%s: %d scripts", page, calls)
		}
	}
}

// fill sends n messages, of which 4,000 at most fail, and returns the id of one that waits.
func (f *fixture) fill(queue string, n int) (id string) {
	f.Helper()
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i] = delayqueue.Outgoing{Payload: "payload-" + strconv.Itoa(i),
			Options: []delayqueue.MsgOption{delayqueue.WithDelay(time.Duration(1+i%72) * time.Hour)}}
		if i < 4_000 {
			batch[i].Options = []delayqueue.MsgOption{delayqueue.WithRetryCount(0)}
		}
	}
	sent, err := delayqueue.NewPublisher(queue, f.cli).SendBatch(f.Context(), batch)
	ok(f, err)
	q := delayqueue.NewQueue(queue, f.cli, nil).WithLogger(slog.New(slog.DiscardHandler)).
		WithHandler(func(context.Context, *delayqueue.Message) error { return errors.New("no answer") })
	ended := q.StartConsume()
	f.eventually("the garbage is there", func() bool {
		counts, err := f.monitor(queue).Counts(f.Context())
		return err == nil && counts.Garbage == int64(min(n, 4_000))
	})
	q.StopConsume() // its fetches are none of a page's
	<-ended
	return sent[n-1].Info.ID
}
