package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	maxClients = 200              // open feeds
	maxTheirs  = 64               // of one visitor
	slowLimit  = 5 * time.Second  // for a client to take what it is sent
	feedLimit  = 30 * time.Minute // after which it asks again
)

// errClosed is what there is after Close.
var errClosed = &httpError{http.StatusServiceUnavailable, "This page has been closed"}

var (
	errFull   = &httpError{http.StatusServiceUnavailable, "Too many pages are open"}
	errTheirs = &httpError{http.StatusTooManyRequests, "You have too many pages open: close some"}
)

// clients are those that are at something, such as the open feeds.
type clients struct {
	most   int   // 0: any number
	full   error // why no more may enter
	each   int   // of one visitor; 0: maxTheirs
	yours  error // why a visitor may no more
	mu     sync.Mutex
	n      int
	theirs map[string]int // of each visitor with a name
	closed bool
	wg     sync.WaitGroup
}

// enter counts a client in, or says why not. A visitor with a name, who "" has not, may be at each or maxTheirs things.
func (c *clients) enter(who string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed
	case c.theirs[who] >= cmp.Or(c.each, maxTheirs):
		return cmp.Or(c.yours, error(errTheirs))
	case c.most > 0 && c.n >= c.most:
		return c.full
	}
	if who != "" {
		if c.theirs == nil {
			c.theirs = map[string]int{}
		}
		c.theirs[who]++
	}
	c.n++
	c.wg.Add(1)
	return nil
}

func (c *clients) leave(who string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.theirs[who] > 1 {
		c.theirs[who]--
	} else {
		delete(c.theirs, who)
	}
	c.n--
	c.wg.Done()
}

func (c *clients) stopped() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
}

// visitor is who asks: the actor, or the machine if Authorize names nobody.
func (r *request) visitor() string {
	if r.Actor != "" {
		return "actor " + r.Actor
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "at " + host
}

// serveLive feeds a page by server-sent events: after each round what has changed of it, as HTML made here, by the
// ids of elements. A client that does not take it in time is dropped, and asks again.
func (h *Handler) serveLive(w http.ResponseWriter, r *request) error {
	name := r.Arg("page")
	route := h.routes[name]
	if route == nil || len(route.live) == 0 {
		return &httpError{http.StatusNotFound, "There is no such page"}
	}
	if err := r.admit(Look, route.queue); err != nil {
		return err
	}
	who := r.visitor()
	if err := h.clients.enter(who); err != nil {
		return err
	}
	defer h.clients.leave(who)
	defer h.poller.watch()()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold it back
	limitWrite(w, slowLimit)
	w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(w).Flush(); err != nil {
		h.log.Warn("delayqueue: pages cannot be kept up to date through this server's ResponseWriter", "error", err)
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), feedLimit)
	defer cancel()
	defer context.AfterFunc(h.done, cancel)()
	f := feed{w: w, r: r, route: route, sent: map[string]string{}}
	for f.send(ctx) {
	}
	return nil
}

// A feed is one open page.
type feed struct {
	w     http.ResponseWriter
	r     *request
	route *route
	sent  map[string]string // by template
}

// A news is what one event says.
type news struct {
	At    time.Time         `json:"at"`              // of what it shows
	When  template.HTML     `json:"when"`            // the same, as the page writes it
	Parts map[string]string `json:"parts,omitempty"` // HTML by id of the element
	Error string            `json:"error,omitempty"` // why the page cannot be kept up to date now
}

// send makes one event and waits for the next snapshot. It reports whether to go on.
func (f *feed) send(ctx context.Context) bool {
	changed := f.r.h.poller.changed()
	if _, err := f.r.may(Look, f.r.Queue); err != nil { // not any more; who asks again is told why
		return false
	}
	n, err := f.news(ctx)
	if err != nil {
		n = news{At: time.Now(), When: f.r.lang.when(time.Now()), Error: f.r.lang.trouble(err)}
	}
	text, err := json.Marshal(n)
	if err != nil || ctx.Err() != nil {
		return false
	}
	limitWrite(f.w, slowLimit)
	if _, err := fmt.Fprintf(f.w, "data: %s\n\n", text); err != nil {
		return false
	}
	if http.NewResponseController(f.w).Flush() != nil {
		return false
	}
	select {
	case <-changed:
		return true
	case <-ctx.Done():
		return false
	}
}

// news is what has changed since the last event.
func (f *feed) news(ctx context.Context) (news, error) {
	ctx, cancel := f.r.h.within(ctx)
	defer cancel()
	s, err := f.r.h.poller.snapshot(ctx)
	if err != nil {
		return news{}, err
	}
	p, err := f.r.h.load(ctx, f.r, f.route)
	if err != nil {
		return news{}, err
	}
	n := news{At: s.At, When: f.r.lang.when(s.At), Parts: map[string]string{}}
	for _, name := range f.route.live {
		var out bytes.Buffer
		if err := pages()[p.lang.Tag][f.route.file].ExecuteTemplate(&out, name, p); err != nil {
			return news{}, err
		}
		if text := out.String(); text != f.sent[name] {
			f.sent[name] = text
			n.Parts[name] = text
		}
	}
	return n, nil
}
