package connect

import (
	"net"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestOpenEmbedded(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	r, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if !r.Embedded || !strings.Contains(r.About, "embedded") {
		t.Errorf("Embedded = %v, About = %q", r.Embedded, r.About)
	}
	if err := r.Client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestOpenAddr(t *testing.T) {
	server := miniredis.RunT(t)
	for _, addr := range []string{server.Addr(), "redis://" + server.Addr() + "/0"} {
		t.Setenv("REDIS_ADDR", addr)
		r, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		if r.Embedded || !strings.Contains(r.About, server.Addr()) {
			t.Errorf("Embedded = %v, About = %q", r.Embedded, r.About)
		}
		r.Close()
	}
}

func TestOpenError(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	closed.Close()
	locked := miniredis.RunT(t)
	locked.RequireAuth("secret")

	for _, tt := range []struct{ addr, want string }{
		{nobody, "does not answer"},
		{locked.Addr(), "NOAUTH"},
		{"localhost", "write host:port"},
		{"ftp://localhost", "not an address"},
	} {
		t.Setenv("REDIS_ADDR", tt.addr)
		r, err := Open()
		if err == nil {
			r.Close()
			t.Errorf("%s: no error", tt.addr)
			continue
		}
		if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %q, want one line with %q", tt.addr, err, tt.want)
		}
	}
}
