// Package web is a page about delay queues, for the person on call and for one who is merely curious.
//
//	page := web.New(redisClient, web.Config{})
//	defer page.Close()
//	mux.Handle("/queues/", page)
//
// It works under any path that ends in a slash, with http.StripPrefix or without, behind any proxy: all its links are
// relative. Without Config.Authorize it changes nothing. docs/web.md says more.
//
// It may import the face of the library, go-redis and the standard library; what others need of a queue belongs into Monitor, not here.
package web

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-delayqueue/delayqueue"
)

// An Action is what somebody wants to do with a queue.
type Action string

// The actions. Look is asked with queue "" for what is about no queue alone, and once for each queue on the board.
const (
	Look       Action = "look"
	Pause      Action = "pause" // and resume
	RunNow     Action = "run now"
	Reschedule Action = "reschedule"
	Requeue    Action = "requeue"
	Cancel     Action = "cancel"
	Delete     Action = "delete"
	SetLimits  Action = "set limits" // and lift a throttle
)

// Config is how a Handler works. The zero value is a page of all queues under the prefix dq that changes nothing.
type Config struct {
	// Prefix of the queues (delayqueue.UseCustomPrefix). Default dq.
	Prefix string

	// Queues are those that are shown, and no others. None: all that are found under the prefix, at most 500. They are
	// looked for with SCAN once a minute at most, and only while somebody looks.
	Queues []string

	// Authorize says whether a request may do something with a queue, and in whose name. An error is a refusal (403) and
	// its text is shown. It is called often, so it should be quick, and from several goroutines at once.
	// nil: everybody who can reach the page may look, and nobody may change anything.
	Authorize func(r *http.Request, do Action, queue string) (actor string, err error)

	// Hosts are the names by which browsers may ask for a page that Serve serves, beside addresses and localhost. None: at a loopback
	// address no others, elsewhere all. Where Authorize asks for no credentials, name them: another site that
	// leads its name to this machine could read the page through the browser of who can reach it.
	Hosts []string

	// Payload is what is shown in place of a message's payload, so that secrets are not. nil: the payload.
	Payload func(queue string, m *delayqueue.MessageStatus) string

	// Trace is the address of a trace, with {trace} where its id belongs. Empty: there is no link.
	Trace string

	// Logger is told of what goes wrong. Default slog.Default.
	Logger *slog.Logger
}

// A Handler is the page. It is safe for concurrent use. It reads from Redis only while somebody looks, and then each
// queue every 2 seconds, however many look.
type Handler struct {
	cli       redis.UniversalClient
	cfg       Config
	log       *slog.Logger
	csrf      *http.CrossOriginProtection
	routes    map[string]*route
	templates templates
	assets    map[string]*asset
	poller    *poller
	cache     cache
	clients   clients       // feeds
	work      clients       // what is read or done for other requests
	jobs      clients       // that run
	spend     time.Duration // on counting, for one page
	bounds    bounds

	done context.Context // it ends with Close
	end  context.CancelFunc
}

// bounds are how long something may take. Only tests change them.
type bounds struct {
	request time.Duration // of a page or a form; and of what is kept for some seconds
	round   time.Duration // of the poller
	queue   time.Duration // of a queue in it
	find    time.Duration // that the first round waits for the names of queues
	begin   time.Duration // in which a job has to do its first step
}

var usualBounds = bounds{request: timeLimit, round: 5 * time.Second, queue: 2 * time.Second, find: 3 * time.Second, begin: 8 * time.Second}

// New makes a page. It panics as delayqueue.NewMonitor does if the prefix or the name of a queue is none.
func New(cli redis.UniversalClient, c Config) *Handler {
	if cli == nil {
		panic("delayqueue: web.New: no client")
	}
	h := &Handler{cli: cli, cfg: c, log: c.Logger, csrf: http.NewCrossOriginProtection()}
	h.clients.most, h.work.most, h.jobs.most = maxClients, math.MaxInt, maxJobs
	h.cfg.Prefix, h.spend, h.bounds = cmp.Or(c.Prefix, "dq"), budgetSpend, usualBounds
	if h.log == nil {
		h.log = slog.Default()
	}
	h.done, h.end = context.WithCancel(context.Background())
	h.poller = newPoller(h)
	for _, name := range c.Queues {
		h.newMonitor(name)
	}
	h.newMonitor("x") // of the prefix
	h.assets = loadAssets()
	h.templates = h.loadTemplates()
	h.routes = map[string]*route{}
	for _, r := range h.allRoutes() {
		h.routes[r.name] = &r
	}
	return h
}

// Close ends what pages are fed by, and the jobs that run here, and waits until nothing more is read from Redis or done there: some
// seconds at most. A request that comes later is refused; another process can go on with those jobs.
func (h *Handler) Close() {
	h.end()
	h.poller.stopped()
	h.clients.stopped()
	h.work.stopped()
	h.jobs.stopped()
	h.cache.stopped()
}

// maxRead is how many bytes of a message a page reads; one may have 511 MB.
const maxRead = 8 << 20

// newMonitor panics if that is no name of a queue.
func (h *Handler) newMonitor(name string) *delayqueue.Monitor {
	return delayqueue.NewMonitor(name, h.cli, delayqueue.UseCustomPrefix(h.cfg.Prefix)).WithReadLimit(maxRead)
}
