package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/ops"
)

const (
	timeLimit  = 10 * time.Second // of a request but live; and for its reply to be taken
	formLimit  = 1 << 20          // bytes
	retryAfter = "5"              // seconds, if a page cannot be had now
)

// headers tell a browser to run no script and take no style but ours, to show the page in no frame, and to keep
// nothing. The referrer goes to no other site; "no-referrer" would make browsers send forms with Origin: null, which
// is refused.
func headers(to http.Header) {
	to.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	to.Set("Cache-Control", "no-store")
	to.Set("X-Content-Type-Options", "nosniff")
	to.Set("X-Frame-Options", "DENY")
	to.Set("Referrer-Policy", "same-origin")
	to.Set("Cross-Origin-Opener-Policy", "same-origin")
	to.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// An httpError is shown in place of a page.
type httpError struct {
	code int
	text string // in English, a key of the catalogue
}

func (e *httpError) Error() string { return e.text }

var (
	errReadOnly = &httpError{http.StatusForbidden, "This page is read-only"} // why nothing can be changed
	errNoQueue  = &httpError{http.StatusNotFound, "There is no such queue"}
)

// A request is one request for a page.
type request struct {
	*http.Request
	h     *Handler
	lang  *language
	Queue string // of the query's q
	Actor string // whom Authorize has named
	query url.Values
	Part  string // which shards are missing from what is shown, and why
	Back  string // the page with the form that was refused; "" if that is not known
}

func (h *Handler) newRequest(r *http.Request) *request {
	query := r.URL.Query()
	lang := *languageOf(r, query)
	lang.zone = zoneOf(r)
	return &request{Request: r, h: h, lang: &lang, Queue: query.Get("q"), query: query}
}

// Arg is a value of the query.
func (r *request) Arg(name string) string { return r.query.Get(name) }

// may asks Authorize, and returns the actor or the refusal.
func (r *request) may(do Action, queue string) (actor string, err error) {
	ask := r.h.cfg.Authorize
	if ask == nil && do != Look {
		return "", errReadOnly
	}
	if ask == nil {
		return "", nil
	}
	if actor, err = ask(r.Request, do, queue); err != nil {
		return "", &httpError{http.StatusForbidden, err.Error()}
	}
	return actor, nil
}

// part takes note of an error that says that only some shards have answered, and returns any other.
func (r *request) part(err error) error {
	if !errors.Is(err, delayqueue.ErrMissingShards) {
		return err
	}
	r.Part = r.lang.missing(err)
	return nil
}

// soon makes a context for numbers of the whole queue. A read of them waits until its end for a shard that does not
// answer.
func (h *Handler) soon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, h.bounds.queue)
}

// within is a context that ends with the time of a request. It has no deadline: a read of a queue with one shard would
// be tried until then, and not for link.ReadFor.
func (h *Handler) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	end := time.AfterFunc(h.bounds.request, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { end.Stop(); cancel(nil) }
}

// counts are those of the queue of the request.
func (r *request) counts(ctx context.Context) (ops.Counts, error) {
	ctx, cancel := r.h.soon(ctx)
	defer cancel()
	n, err := r.Monitor().Counts(ctx)
	return n, r.part(err)
}

// May is for templates, which show a form only if the request may send it.
func (r *request) May(do Action) bool {
	_, err := r.may(do, r.Queue)
	return err == nil
}

// Monitor is the request's queue, in the name of its actor.
func (r *request) Monitor() *ops.Queue {
	m := r.h.newMonitor(r.Queue)
	if r.Actor != "" {
		m.WithOperator(r.Actor)
	}
	return m
}

// admit returns an error if the request may not do this with its queue, or if there is no such queue.
func (r *request) admit(do Action, aboutQueue bool) (err error) {
	if !aboutQueue {
		r.Queue = ""
	}
	if r.Actor, err = r.may(do, r.Queue); err == nil && aboutQueue && !r.h.known(r.Queue) {
		err = errNoQueue
	}
	return err
}

// known says whether a queue of this name may be shown. A name with NUL, line ends or bytes that are no UTF-8 is not
// valid: a browser would not send it back as it is, so a form would act on another queue.
func (h *Handler) known(name string) (ok bool) {
	if len(h.cfg.Queues) > 0 {
		return slices.Contains(h.cfg.Queues, name)
	}
	defer func() { ok = recover() == nil }()
	h.newMonitor(name)
	return true
}

// A page is what templates see.
type page struct {
	*request
	Route  *route
	Title  string // in the language of the page
	Data   any
	At     time.Time // when it was made
	Notice string    // what the last form has done
}

// Is says whether this is the page of that name.
func (p *page) Is(name string) bool { return p.Route.name == name && p.Route.file != "" }

// A sibling is a page of the same queue.
type sibling struct{ Name, Title string }

// QueuePages are the pages of a queue that are in its navigation.
func (p *page) QueuePages() (all []sibling) {
	for _, name := range []string{"queue", "messages", "errors", "lanes", "consumers", "schedules", "limits", "journal"} {
		all = append(all, sibling{name, p.lang.say(p.h.routes[name].title)})
	}
	return all
}

// Lang is the page's language as browsers call it.
func (p *page) Lang() string { return p.lang.Tag }

// Languages are those that the page can be had in.
func (p *page) Languages() []*language { return languages }

// Here is the address of this page with another value in its query.
func (p *page) Here(name, value string) string {
	return linkOf(p.Route.name, forget(p.query), name, value)
}

// Feed is the address by which the page is kept up to date, "" if it is not.
func (p *page) Feed() string {
	if len(p.Route.live) == 0 {
		return ""
	}
	return linkOf("live", p.query, "page", p.Route.name, "lang", p.lang.Tag)
}

// link is the address of a page, relative to every other one.
func link(name string, query url.Values) string {
	if text := query.Encode(); text != "" {
		return cmp.Or(name, "./") + "?" + text
	}
	return cmp.Or(name, "./")
}

// linkOf is the address of a page with a query in which some values are others; "" takes one away.
func linkOf(page string, query url.Values, pairs ...any) string {
	changed := url.Values{}
	maps.Copy(changed, query)
	for i := 0; i < len(pairs); i += 2 {
		name, value := fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1])
		changed.Set(name, value)
		if value == "" {
			changed.Del(name)
		}
	}
	return link(page, changed)
}

// load reads what a page shows.
func (h *Handler) load(ctx context.Context, r *request, route *route) (*page, error) {
	if err := h.work.enter(""); err != nil {
		return nil, err
	}
	defer h.work.leave("")
	data, err := route.load(ctx, r)
	if err != nil {
		return nil, err
	}
	return &page{request: r, Route: route, Title: r.lang.say(route.title), Data: data, At: time.Now(), Notice: r.said()},
		nil
}

func (h *Handler) servePage(w http.ResponseWriter, r *request, route *route) error {
	if err := r.admit(Look, route.queue); err != nil {
		return err
	}
	ctx, cancel := h.within(r.Context())
	defer cancel()
	defer context.AfterFunc(h.done, cancel)()
	p, err := h.load(ctx, r, route)
	if err != nil && h.done.Err() != nil {
		return errClosed
	}
	if err != nil {
		return err
	}
	return h.render(w, p, route.file, http.StatusOK)
}

func (h *Handler) render(w http.ResponseWriter, p *page, file string, code int) error {
	var out bytes.Buffer // an error half way must not show half a page
	if err := pages()[p.lang.Tag][file].ExecuteTemplate(&out, "layout", p); err != nil {
		return fmt.Errorf("delayqueue: page %s: %w", file, err)
	}
	p.lang.remember(w, p.request)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Language", p.lang.Tag)
	w.Header().Set("Vary", "Accept-Language, Cookie")
	limitWrite(w, timeLimit)
	w.WriteHeader(code)
	_, _ = w.Write(out.Bytes()) // a client that has gone needs no answer
	return nil
}

// limitWrite bounds how long a client may take for a reply.
func limitWrite(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(
		time.Now().Add(limit)) // if a writer cannot, the limit of its server holds
}

// servePost runs a form, and redirects to the next page or shows the page of the form.
func (h *Handler) servePost(w http.ResponseWriter, r *request, route *route) error {
	if err := h.csrf.Check(r.Request); err != nil {
		return &httpError{http.StatusForbidden, "This form was sent from another site"}
	}
	r.Body = http.MaxBytesReader(w, r.Body, formLimit)
	if err := r.ParseForm(); err != nil {
		return &httpError{http.StatusBadRequest, "This form cannot be read"}
	}
	if r.Queue == "" {
		r.Queue = r.PostForm.Get("q")
	}
	if err := r.admit(route.act, route.queue); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.bounds.request)
	defer cancel()
	if err := h.work.enter(""); err != nil {
		return err
	}
	next, err := func() (string, error) {
		defer h.work.leave("")
		if route.queue { // a form must not make a queue
			if _, err := r.counts(ctx); err != nil {
				return "", err
			}
		}
		return route.post(ctx, r)
	}()
	if missing, _, _ := health.Away(err); len(missing) > 0 && next != "" { // it was done in the others
		next, err = next+"&"+url.Values{"away": {shardNames(missing)}}.Encode(), nil
	}
	if err != nil {
		return err
	}
	redirect(w, next, http.StatusSeeOther)
	return nil
}

// redirect goes to a relative address. http.Redirect would make it absolute, by a path from which a prefix may be
// missing.
func redirect(w http.ResponseWriter, to string, code int) {
	w.Header().Set("Location", to)
	w.WriteHeader(code)
}

// fail shows an error in place of a page.
func (h *Handler) fail(w http.ResponseWriter, r *request, err error) {
	code, text := http.StatusBadGateway, ""
	var known *httpError
	switch {
	case errors.As(err, &known):
		code, text = known.code, r.lang.say(known.text)
	case errors.Is(err, delayqueue.ErrNotFound):
		code, text = http.StatusNotFound, r.lang.trouble(err)
	case r.Context().Err() != nil: // nobody waits for it any more
		code, text = 499, "gone"
	case unreachable(err):
		code, text = http.StatusGatewayTimeout, r.lang.trouble(err)
	default:
		text = r.lang.trouble(err)
	}
	if code >= 500 {
		w.Header().Set("Retry-After", retryAfter)
		h.log.Warn("delayqueue: a page could not be shown", "page", r.URL.Path, "queue", r.Queue, "error", err)
	}
	p := &page{request: r, Route: &route{title: "Queues"}, Title: r.lang.say("This page cannot be shown"), Data: text,
		At: time.Now()}
	switch {
	case r.Method == http.MethodPost && code < 499 && known != errUnseen:
		p.Title = r.lang.say("It was not done")
	case r.Method == http.MethodPost:
		p.Title = r.lang.say("It may not have been done")
	case code == http.StatusNotFound:
		p.Title = r.lang.say("Not found")
	}
	if _, hidden := r.may(Look, r.Queue); r.Queue != "" && hidden == nil && h.known(r.Queue) && err != errNoQueue &&
		!errors.Is(err, delayqueue.ErrNoQueue) {
		p.Route.queue = true // the links to its pages stay
	}
	if err := h.render(w, p, "error", code); err != nil {
		http.Error(w, text, code)
	}
}

// contain makes an error of a panic, so that it ends this page alone. Of a feed that has begun, browsers pass over
// the text.
func (h *Handler) contain(w http.ResponseWriter, r *http.Request) {
	bad := recover()
	if bad == nil {
		return
	}
	if bad == http.ErrAbortHandler { // the server ends the connection
		panic(bad)
	}
	h.panicked(bad, "page", r.URL.Path)
	http.Error(w, "Something went wrong: the log of the service says what.", http.StatusInternalServerError)
}

// panicked logs a panic that was recovered.
func (h *Handler) panicked(bad any, where ...any) {
	h.log.Error("delayqueue: a page panicked", append(where, "panic", fmt.Sprint(bad), "stack", string(debug.Stack()))...)
}

// trouble is an error in words.
func (l *language) trouble(err error) string {
	var known *httpError
	switch {
	case errors.As(err, &known):
		return l.say(known.text)
	case errors.Is(err, delayqueue.ErrMissingShards):
		return l.missing(err)
	case errors.Is(err, delayqueue.ErrNoQueue):
		return l.say("There is no such queue")
	case errors.Is(err, delayqueue.ErrNotFound):
		return l.say("There is no such message")
	case errors.Is(err, delayqueue.ErrWrongType):
		return l.say("a key of this queue belongs to another program (WRONGTYPE)")
	case strings.Contains(err.Error(), "READONLY "): // a replica has refused to write
		return l.say(
			"Redis takes no writes: this is a replica (READONLY), and the client of this page has to lead to the primary")
	case unreachable(err):
		return l.say("Redis does not answer")
	}
	return shown(serverAddress.ReplaceAllString(strings.TrimPrefix(err.Error(), "delayqueue: "), "…"))
}

// missing says which shards have not answered, and why.
func (l *language) missing(err error) string {
	missing, of, why := health.Away(err)
	names, reason := shardNames(missing), l.trouble(why)
	if len(missing) > 1 {
		return l.say("Shards %s of %s do not answer: %s. What is shown is without them.", names, l.number(of), reason)
	}
	return l.say("Shard %s of %s does not answer: %s. What is shown is without it.", names, l.number(of), reason)
}

// shardNames are the numbers of shards.
func shardNames(all []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(all)), ", "), "[]")
}

// serverAddress is the address of a server, or its socket.
var serverAddress = regexp.MustCompile(`(?:\[[0-9a-fA-F:.%]+\]|[0-9A-Za-z_.-]+):[0-9]{1,5}\b|/\S+\.sock\b`)

// unreachable says whether Redis could not be reached. The text of such an error has the address of Redis, which is
// not shown.
func unreachable(err error) bool {
	var network net.Error
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) ||
		errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}
