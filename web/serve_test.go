package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
)

func TestServeRefusesOtherMachines(t *testing.T) {
	f := newFixture(t, Config{})
	open, err := net.Listen("tcp", "0.0.0.0:0")
	ok(t, err)
	defer open.Close()
	if err := f.page.Serve(f.Context(), open); !errors.Is(err, ErrNotLoopback) {
		t.Errorf("%v", err)
	}
	may := New(f.cli, Config{Authorize: func(*http.Request, Action, string) (string, error) { return "ann", nil }})
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	if err := may.Serve(ctx, open); err != nil {
		t.Error(err)
	}
}

// Another name that leads here is another site's, unless it is one of the page's.
func TestHosts(t *testing.T) {
	open, named, both := &Handler{}, &Handler{cfg: Config{Hosts: []string{"Queues.example"}}}, []bool{true, false}
	for _, c := range []struct {
		host          string
		page          *Handler
		here, outside bool
	}{
		{"127.0.0.1:80", open, true, true}, {"[::1]:80", open, true, true}, {"[::1]", open, true, true}, {"localhost", open, true, true},
		{"LOCALHOST.:80", open, true, true},
		{"10.0.0.1", open, false, true}, {"[fd00::1]:80", open, false, true}, {"queues.example:80", open, false, false}, {"", open, false, false},
		{"queues.example", named, true, true}, {"queues.example.:80", named, true, true}, {"evil.example", named, false, false},
		{"queues.example.evil", named, false, false},
	} {
		for _, loopback := range both {
			if got, want := c.page.answers(c.host, loopback), loopback && c.here || !loopback && c.outside; got != want {
				t.Errorf("%q, at loopback %v: %v", c.host, loopback, got)
			}
		}
	}
}

func TestServe(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x")
	page := New(f.cli, Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	ctx, cancel := context.WithCancel(f.T.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- page.Serve(ctx, l) }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for host, code := range map[string]int{"": 200, "localhost:1": 200, "evil.example": 421} {
		r, err := http.NewRequestWithContext(f.Context(), http.MethodGet, "http://"+l.Addr().String()+"/", nil)
		ok(t, err)
		r.Host = host
		got, err := transport.RoundTrip(r)
		ok(t, err)
		got.Body.Close()
		if got.StatusCode != code {
			t.Errorf("host %q: %d", host, got.StatusCode)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
