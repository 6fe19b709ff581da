package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// ErrNotLoopback says that a page without Config.Authorize is served at a loopback address only.
var ErrNotLoopback = errors.New(
	"delayqueue: web: this page has no Config.Authorize, so it is served at a loopback address only, " +
		"as 127.0.0.1: anybody who could reach another one could read all queues")

func local(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Serve serves the page at the root of a listener until ctx ends, and closes the Handler then. It returns
// ErrNotLoopback for an address that other machines can reach, if there is no Config.Authorize, and nil if it ended
// because ctx did. At a loopback address, or if there are Config.Hosts, it answers only to addresses, localhost and
// Config.Hosts. Otherwise another site could lead its own name to the page, and its script would read the page.
func (h *Handler) Serve(ctx context.Context, l net.Listener) error {
	if !local(l.Addr()) && h.cfg.Authorize == nil {
		return ErrNotLoopback
	}
	var page http.Handler = h
	if loopback := local(l.Addr()); loopback || len(h.cfg.Hosts) > 0 {
		page = h.named(loopback)
	}
	server := &http.Server{Handler: page, ReadHeaderTimeout: timeLimit, ReadTimeout: 3 * timeLimit,
		IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	finished := make(chan struct{})
	ended := context.AfterFunc(ctx, func() {
		defer close(finished)
		h.Close() // the feeds end, which Shutdown would wait for
		soon, cancel := context.WithTimeout(context.Background(), timeLimit)
		defer cancel()
		if server.Shutdown(soon) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(l)
	if !ended() {
		<-finished // requests that are at work still
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
	}
	h.Close()
	return fmt.Errorf("delayqueue: web: %w", err)
}

// named refuses host names that are neither this machine's nor in Config.Hosts.
func (h *Handler) named(loopback bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.answers(r.Host, loopback) {
			limitWrite(w, timeLimit)
			http.Error(w, "This page does not answer to that name: it is at the address of its machine, "+
				"at http://localhost, and at the names that it was given.", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// answers says whether the page answers to a host. Nobody can lead an address here, so addresses are accepted; a page
// at a loopback address accepts only loopback addresses.
func (h *Handler) answers(host string, loopback bool) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip := net.ParseIP(strings.Trim(host, "[]")); ip != nil {
		return ip.IsLoopback() || !loopback
	}
	return host == "localhost" || slices.ContainsFunc(h.cfg.Hosts, func(name string) bool {
		return strings.EqualFold(name, host)
	})
}
