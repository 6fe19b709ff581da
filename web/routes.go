package web

import (
	"context"
	"net/http"
	"strings"
)

// A route is a page, or the action of a form. Its address is its name below the path of the Handler, always one level
// deep, so that relative links are right under every path and behind every proxy. The query has the queue, because a
// name of a queue may hold any character.
type route struct {
	name  string // last part of the path; "" is the board
	title string // in English, a key of the catalogue
	queue bool   // it is about the queue of the query's q

	// A page: the file of the folder templates has a template "content", whose .Data is the result of load. load does
	// bounded work. If live is set, load is called for each open page every 2 s, so it takes from Redis only what the
	// snapshot or the cache has.
	file string
	load func(ctx context.Context, r *request) (any, error)
	live []string // templates that a feed sends again, each for the element with this id

	// What a form does: by POST, with Authorize asked for the action. It returns where to go then, as link does.
	act  Action
	post func(ctx context.Context, r *request) (next string, err error)
}

// allRoutes are the pages and forms. The forms that say Look ask for more themselves.
func (h *Handler) allRoutes() []route {
	return []route{
		{name: "", title: "Queues", file: "board", load: h.board, live: []string{"summary", "rows"}},
		{name: "health", title: "Health", file: "health", load: h.health, live: []string{"servers"}},
		{name: "queue", title: "Overview", queue: true, file: "queue", load: h.queue,
			live: []string{"standing", "numbers", "books", "future", "kinds", "past"}},
		{name: "messages", title: "Messages", queue: true, file: "messages", load: h.messages},
		{name: "errors", title: "Errors", queue: true, file: "errors", load: h.errors, live: []string{"groups"}},
		{name: "message", title: "Message", queue: true, file: "message", load: h.message},
		{name: "lanes", title: "Lanes", queue: true, file: "lanes", load: h.lanes},
		{name: "consumers", title: "Consumers", queue: true, file: "consumers", load: h.consumers, live: []string{"alive"}},
		{name: "schedules", title: "Schedules", queue: true, file: "schedules", load: h.schedules},
		{name: "schedule", title: "Are you sure?", queue: true, file: "schedule", load: h.askSchedule, act: Look,
			post: h.postSchedule},
		{name: "limits", title: "Limits", queue: true, file: "limits", load: h.limits, act: SetLimits, post: h.postLimits},
		{name: "books", title: "Books", queue: true, act: Accept, post: h.postBooks},
		{name: "journal", title: "Journal", queue: true, file: "journal", load: h.journal, live: []string{"entries"}},
		{name: "pause", title: "Pause", queue: true, file: "pause", load: h.askPause, act: Pause, post: h.postPause},
		{name: "act", title: "Are you sure?", queue: true, file: "act", load: h.askAct, act: Look, post: h.postAct},
		{name: "plan", title: "All that match", queue: true, file: "plan", load: h.plan, act: Look, post: h.postPlan},
		{name: "job", title: "Job", queue: true, file: "job", load: h.job, live: []string{"state"}, act: Look,
			post: h.postJob},
	}
}

// About says whether a page is about a queue, whose other pages are offered then.
func (r *route) About() bool { return r.queue }

// ServeHTTP serves a page.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.contain(w, r)
	headers(w.Header())
	if h.done.Err() != nil {
		h.fail(w, h.newRequest(r), &httpError{http.StatusServiceUnavailable, "This page has been closed"})
		return
	}
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if asset := assets()[name]; asset != nil {
		asset.serve(w, r)
		return
	}
	req := h.newRequest(r)
	if seen, _, _ := strings.Cut(r.RequestURI, "?"); name == "" && seen != "" && !strings.HasSuffix(seen, "/") &&
		!strings.Contains(seen, "://") {
		redirect(w, seen[strings.LastIndexByte(seen, '/')+1:]+"/",
			http.StatusTemporaryRedirect) // links are relative to a folder
		return
	}
	var err error
	switch known := h.routes[name]; {
	case name == "live" && r.Method == http.MethodGet:
		err = h.serveLive(w, req)
	case name == "export" && r.Method == http.MethodGet:
		err = h.serveExport(w, req)
	case known == nil:
		err = &httpError{http.StatusNotFound, "There is no such page"}
	case known.load != nil && isGet(r):
		err = h.servePage(w, req, known)
	case known.post != nil && r.Method == http.MethodPost:
		err = h.servePost(w, req, known)
	default:
		err = &httpError{http.StatusMethodNotAllowed, "This page does not take that method"}
	}
	if err != nil {
		h.fail(w, req, err)
	}
}

func isGet(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
