package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-unpaid") { // this is the child of a test
		main()
	}
	leaks.Main(m)
}

// serve runs the program until the test ends, and returns its URL.
func serve(t *testing.T, args ...string) (url string, out *testkit.Buffer, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	out = &testkit.Buffer{}
	args = append(args, "-addr", "127.0.0.1:0", "-file", filepath.Join(t.TempDir(), "orders.db"))
	go func() { ended <- run(ctx, args, out, out) }()
	stop = func() int { cancel(); return testkit.Receive(t, "the end of the program", ended) }
	t.Cleanup(cancel)
	address := regexp.MustCompile(`listening on (\S+),`)
	testkit.Until(t, "it listens", func() bool { return address.MatchString(out.String()) })
	return "http://" + address.FindStringSubmatch(out.String())[1], out, stop
}

func call(t *testing.T, method, url string, want int) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("tea"))
	testkit.Must(t, err)
	answer, err := http.DefaultClient.Do(r)
	testkit.Must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	testkit.Must(t, err)
	if answer.StatusCode != want {
		t.Errorf("%s %s: %d, want %d: %s", method, url, answer.StatusCode, want, text)
	}
	return strings.TrimSpace(string(text))
}

func TestOrders(t *testing.T) {
	url, out, stop := serve(t, "-unpaid", "700ms")
	paidOne, closedOne := call(t, "POST", url+"/orders", 201), call(t, "POST", url+"/orders", 201)
	for range 2 { // a repeat answers the same
		call(t, "POST", url+"/orders/"+paidOne+"/pay", 200)
	}
	testkit.Until(t, "the other is closed", func() bool { return call(t, "GET", url+"/orders/"+closedOne, 200) == closed })
	call(t, "POST", url+"/orders/"+closedOne+"/pay", 409)
	call(t, "POST", url+"/orders/nothing/pay", 404)
	call(t, "GET", url+"/orders/nothing", 404)
	if state := call(t, "GET", url+"/orders/"+paidOne, 200); state != paid {
		t.Error(state)
	}
	testkit.Has(t, call(t, "GET", url+"/count", 200), "0 unpaid, 1 paid, 1 closed")
	http.DefaultClient.CloseIdleConnections()
	if code := stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestKill: the program kills itself, and counts.
func TestKill(t *testing.T) {
	out := &testkit.Buffer{}
	if code := run(t.Context(), []string{"-kill", "3"}, out, out); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	testkit.Has(t, out.String(), "killed 3 of 3: ", "missing: 0; paid, and closed all the same: 0")
	http.DefaultClient.CloseIdleConnections()
}

func TestUsage(t *testing.T) {
	out := &testkit.Buffer{}
	if code := run(t.Context(), []string{"-x"}, out, out); code != 2 {
		t.Error(code)
	}
}
