package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// instance is one process of the service, as far as the others can see.
type instance struct {
	t   *testing.T
	url string
	log *testkit.Buffer
	*service
}

func newInstance(t *testing.T, addr string, timeout time.Duration) *instance {
	t.Helper()
	cli := redis.NewClient(&redis.Options{Addr: addr})
	buf := &testkit.Buffer{}
	s := newService(cli, timeout, log.New(buf, "", 0))
	server := httptest.NewServer(s.handler())
	s.queue.StartConsume()
	t.Cleanup(func() {
		server.Close()
		if err := within(s.queue.Shutdown); err != nil {
			t.Error(err)
		}
		cli.Close()
	})
	return &instance{t: t, url: server.URL, log: buf, service: s}
}

// call makes a request and checks the status.
func (i *instance) call(method, path, body string, want int) map[string]string {
	i.t.Helper()
	req, err := http.NewRequestWithContext(i.t.Context(), method, i.url+path, strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	if resp.StatusCode != want {
		i.t.Errorf("%s %s: status %d, want %d: %s", method, path, resp.StatusCode, want, raw)
	}
	var answer map[string]string
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(raw, &answer); err != nil {
			i.t.Errorf("%s %s: %v: %s", method, path, err, raw)
		}
	}
	return answer
}

func (i *instance) create() (path string) {
	i.t.Helper()
	o := i.call("POST", "/orders", `{"item": "tea"}`, http.StatusCreated)
	if o["state"] != open || o["item"] != "tea" || o["closes_at"] == "" {
		i.t.Errorf("created %v", o)
	}
	return "/orders/" + o["id"]
}

func (i *instance) state(path string) string {
	i.t.Helper()
	return i.call("GET", path, "", http.StatusOK)["state"]
}

func (i *instance) awaitClosed(path string) {
	i.t.Helper()
	testkit.Until(i.t, path+" is closed", func() bool { return i.state(path) == closed })
}

func TestUnpaidIsClosed(t *testing.T) {
	i := newInstance(t, miniredis.RunT(t).Addr(), 50*time.Millisecond)
	path := i.create()
	i.awaitClosed(path)
	i.call("POST", path+"/pay", "", http.StatusConflict)
	if got := i.state(path); got != closed {
		t.Errorf("state %s after a late payment, want %s", got, closed)
	}
}

func TestPaidIsNotClosed(t *testing.T) {
	i := newInstance(t, miniredis.RunT(t).Addr(), time.Minute)
	path := i.create()
	for range 2 { // a repeat answers the same
		if got := i.call("POST", path+"/pay", "", http.StatusOK)["state"]; got != paid {
			t.Errorf("answer %q, want %q", got, paid)
		}
	}
	if got := i.state(path); got != paid {
		t.Errorf("state %s, want %s", got, paid)
	}
	if !strings.Contains(i.log.String(), "its timeout was pending and is taken back") {
		t.Errorf("the timeout was not taken back:\n%s", i.log)
	}
}

// A timeout that comes although the order is paid, as when its interception failed.
func TestTimeoutOfPaidOrder(t *testing.T) {
	i := newInstance(t, miniredis.RunT(t).Addr(), time.Minute)
	path := i.create()
	i.call("POST", path+"/pay", "", http.StatusOK)
	id := strings.TrimPrefix(path, "/orders/")
	if _, err := closeOrder.Send(t.Context(), i.queue, unpaid{id}); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the handler has seen it", func() bool { return strings.Contains(i.log.String(), "found it paid") })
	if got := i.state(path); got != paid {
		t.Errorf("state %s, want %s", got, paid)
	}
}

// The order is made in one process and paid in another, which never saw its message.
func TestTwoInstances(t *testing.T) {
	addr := miniredis.RunT(t).Addr()
	const timeout = 8 * time.Second // longer than paying takes, also where the machine has other things to do
	a, b := newInstance(t, addr, timeout), newInstance(t, addr, timeout)
	first, second := a.create(), b.create()
	b.call("POST", first+"/pay", "", http.StatusOK)
	if !strings.Contains(b.log.String(), "its timeout was pending and is taken back") {
		t.Errorf("b did not take back a's timeout:\n%s", b.log)
	}
	// When the later one is closed, the time of the earlier one is past too.
	a.awaitClosed(second)
	for _, i := range []*instance{a, b} {
		if got := i.state(first); got != paid {
			t.Errorf("state %s, want %s", got, paid)
		}
		if got := i.state(second); got != closed {
			t.Errorf("state %s, want %s", got, closed)
		}
	}
}

// Payments race the timeout: what the client is told must be what the order stays at.
func TestPayRacesClose(t *testing.T) {
	addr := miniredis.RunT(t).Addr()
	a, b := newInstance(t, addr, 30*time.Millisecond), newInstance(t, addr, 30*time.Millisecond)
	var all sync.WaitGroup
	for n := range 60 {
		all.Go(func() {
			o, err := a.place(t.Context(), "tea")
			if err != nil {
				t.Error(err)
				return
			}
			// From 10 ms before the time to 5 ms after it.
			time.Sleep(time.Until(o.ClosesAt) + time.Duration(n-40)*250*time.Microsecond)
			resp, err := http.Post(b.url+"/orders/"+o.ID+"/pay", "", nil)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			want := map[int]string{http.StatusOK: paid, http.StatusConflict: closed}[resp.StatusCode]
			logged := regexp.MustCompile(`(?m)^order ` + o.ID + `: closed`)
			if want == closed {
				testkit.Until(t, "somebody logs order "+o.ID+" closed", func() bool {
					return logged.MatchString(a.log.String() + b.log.String())
				})
			}
			if got := a.state("/orders/" + o.ID); got != want {
				t.Errorf("order %s: answer %d, yet it is %s", o.ID, resp.StatusCode, got)
			}
			if want == paid && logged.MatchString(a.log.String()+b.log.String()) {
				t.Errorf("order %s is paid and was closed", o.ID)
			}
		})
	}
	all.Wait()
}

func TestRefusals(t *testing.T) {
	i := newInstance(t, miniredis.RunT(t).Addr(), time.Minute)
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/orders/99", "", http.StatusNotFound},
		{"POST", "/orders/99/pay", "", http.StatusNotFound},
		{"POST", "/orders", "tea", http.StatusBadRequest},
		{"POST", "/orders", "", http.StatusBadRequest},
		{"POST", "/orders", `{"item": 7}`, http.StatusBadRequest},
		{"POST", "/orders", `{}`, http.StatusBadRequest},
		{"GET", "/orders", "", http.StatusMethodNotAllowed},
	} {
		i.call(tt.method, tt.path, tt.body, tt.want)
	}
	if got := i.call("GET", "/orders/99", "", http.StatusNotFound)["error"]; got == "" {
		t.Error("a refusal says nothing")
	}
}

func TestRedisAway(t *testing.T) {
	server := miniredis.RunT(t)
	i := newInstance(t, server.Addr(), time.Minute)
	path := i.create()
	server.SetError("LOADING it is away")
	i.call("GET", path, "", http.StatusServiceUnavailable)
	i.call("POST", path+"/pay", "", http.StatusServiceUnavailable)
	i.call("POST", "/orders", `{"item": "tea"}`, http.StatusServiceUnavailable)
	server.SetError("")
	i.call("POST", path+"/pay", "", http.StatusOK)
}

func TestRequestsAreBounded(t *testing.T) {
	served := false
	bounded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, served = r.Context().Deadline()
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	if !served {
		t.Error("a request has no end")
	}
}

// The program as a whole: start, serve, stop.
func TestRun(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs testkit.Buffer
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"-addr", "127.0.0.1:0", "-timeout", "100ms"}, &out, &errs) }()
	address := regexp.MustCompile(`listening on (\S+),`)
	testkit.Until(t, "it listens", func() bool { return address.MatchString(out.String()) })
	i := &instance{t: t, url: "http://" + address.FindStringSubmatch(out.String())[1]}
	i.awaitClosed(i.create())
	cancel()
	if got := testkit.Receive(t, "it stops", code); got != 0 || errs.String() != "" {
		t.Errorf("exit code %d, stderr %q", got, &errs)
	}
	for _, want := range []string{"redis: embedded", "curl -X POST", "order 1: closed", "no more requests",
		"no more timeouts", "stopped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	taken := httptest.NewServer(nil)
	defer taken.Close()
	testkit.RunUsages(t, func(args []string, out, errs io.Writer) int { return run(t.Context(), args, out, errs) },
		[]testkit.Usage{
			{Args: []string{"-timeout", "0s"}, Code: 2, Want: "must be positive"},
			{Args: []string{"-nosuch"}, Code: 2, Want: "not defined"},
			{Args: []string{"-addr", strings.TrimPrefix(taken.URL, "http://")}, Code: 1, Want: "in use"},
			{Redis: "127.0.0.1:1", Code: 1, Want: "does not answer"},
		})
}
