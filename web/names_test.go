package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// A form acts on its queue alone: for one that is not there it makes none, and names that a browser would not send
// back as they are have no pages.
func TestFormsActOnTheirQueueAlone(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.sent("orders", "x")
	for _, c := range []struct{ page, form string }{
		{"pause", "do=pause&for=15m0s"}, {"pause", "do=resume"}, {"limits", "do=set&rate=5&per=1s"}, {"limits", "do=clear"},
		{"act", "do=run&id=01a2064a-88dc-7242-b397-44842642a400"},
	} {
		for _, name := range []string{"orderz", "h%EF%BF%BD", "h%FF", "h%00", "cr%0D%0Ax"} {
			got := f.ask(http.MethodPost, c.page, c.form+"&q="+name)
			if got.code != http.StatusNotFound && got.code != http.StatusForbidden {
				t.Errorf("%s of %s: %d %s", c.page, name, got.code, got.header.Get("Location"))
			}
		}
	}
	keys, err := f.cli.Keys(f.Context(), "*").Result()
	for _, key := range keys {
		if !strings.HasPrefix(key, "{dq:orders}:") {
			t.Errorf("there is %q", key)
		}
	}
	if err != nil || len(keys) == 0 {
		t.Error(keys, err)
	}
	for _, name := range []string{"h%FF", "h%00", "cr%0D%0Ax"} {
		for _, page := range []string{"pause", "limits", "act", "plan"} {
			if got := f.get(page + "?do=run&state=pending&id=x&q=" + name); got.code != http.StatusNotFound {
				t.Errorf("%s of %s: %d", page, name, got.code)
			}
		}
	}
}

// Before something is done to all, the page says by how much and how fast.
func TestPlanSaysHow(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.batch("orders", "x", 25)
	_, body := f.counted(address("plan", "q", "orders", "state", "pending", "do", "postpone", "by", "168h0m0s", "rate", "10", "count", "1"))
	f.sees(body, "By how much</span> <code class=\"foreign\">7 d<", "10 a second, which takes 2 s", "Postpone by 7 d: 25 messages</button>")
	_, body = f.counted(address("plan", "q", "orders", "state", "pending", "do", "delete", "count", "1"))
	f.sees(body, "as fast as it goes", "Delete: 25 messages</button>")
	f.lacks(body, "By how much")
}

// The board says how many queues its verdict is about, and finds one by name.
func TestBoardFindsQueues(t *testing.T) {
	f := newFixture(t, Config{})
	for i := range 3 {
		f.sent(fmt.Sprint("Orders ", i), "x", delayqueue.WithDelay(time.Hour))
	}
	f.sent("mails", "x", delayqueue.WithDelay(time.Hour))
	all := f.get("").body
	f.sees(all, "of 4</h1>", ">mails<", ">Orders 1<")
	some := f.get("?name=orders").body
	f.sees(some, ">Orders 0<", ">Orders 2<", `value="orders"`, "of 4</h1>")
	f.lacks(some, ">mails<")
	f.sees(f.get("?name=nothing").body, "There is no such queue")
	// One that is not among those that are shown.
	f.serve(Config{})
	f.page.poller.found = finding{names: []string{"mails"}, hidden: true, again: time.Now().Add(time.Hour)}
	some = f.get("").body
	f.sees(some, "There are more queues than are shown", ">mails<")
	f.lacks(some, "All is well. ", ">Orders 1<")
	f.sees(f.get("?name=Orders+1").body, ">Orders 1<")
	if got := f.get("?name=" + strings.Repeat("x", 9000)); got.code != http.StatusOK {
		t.Error(got.code)
	}
}

// With more queues than are shown nothing is simply well.
func TestVerdictOfSomeQueues(t *testing.T) {
	for hidden, want := range map[bool]string{false: "All is well. Queues: 1", true: "All is well with the 1 queues that are shown"} {
		b := &board{snapshot: &snapshot{Hidden: hidden}, Rows: []row{{}}}
		if b.judge(languages[0]); b.Words != want || (b.Level == 0) == hidden {
			t.Errorf("%v: %q, %v", hidden, b.Words, b.Level)
		}
	}
}
