// Package web is a page about delay queues, for the person on call and for the curious.
//
//	page := web.New(redisClient, web.Config{})
//	defer page.Close()
//	mux.Handle("/queues/", page)
//
// The page works under any path that ends in a slash, with http.StripPrefix or without, behind any proxy, because all
// its links are relative. Without Config.Authorize it changes nothing. docs/web.md says more.
//
// The package may import the face of the library, ops, schedule, internal/{health,export}, go-redis and the standard
// library, and the time in an id from internal/message. A function that others need of a queue belongs into ops.
package web

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// An Action is something that a request may do with a queue.
type Action string

// The actions. Authorize is asked for Look with queue "" on pages that are about no single queue, and once for each
// queue on the board.
const (
	Look       Action = "look"
	Pause      Action = "pause"   // and resume, also a schedule
	RunNow     Action = "run now" // also the message of a schedule
	Reschedule Action = "reschedule"
	Requeue    Action = "requeue"
	Cancel     Action = "cancel"     // what is to be delivered, or is being handled
	Delete     Action = "delete"     // what is dead, or is kept after its ack
	SetLimits  Action = "set limits" // and lift a throttle
	Skip       Action = "skip"       // end the turn of a message in its lane, for the next one
	Accept     Action = "accept"     // a loss, and what the books do not explain (ops.Queue.AcceptBalance)
)

// Config is how a Handler works. The zero value is a page of all queues under the prefix dq that changes nothing.
type Config struct {
	// Prefix of the queues (delayqueue.UseCustomPrefix). Default dq.
	Prefix string

	// Queues are the queues that are shown. None: all queues that are found under the prefix, at most 500. The page
	// looks for them with SCAN once a minute at most, and only while a page is open.
	Queues []string

	// Authorize says whether a request may do something with a queue, and in whose name. An error is a refusal (403),
	// and its text is shown. Authorize is called often, from several goroutines at once, so it should be quick. nil:
	// everybody who can reach the page may look, and nobody may change anything.
	Authorize func(r *http.Request, do Action, queue string) (actor string, err error)

	// Hosts are the host names of a page that Serve serves, beside addresses and localhost. None: at a loopback address
	// there are no others, and elsewhere all names are accepted. If Authorize asks for no credentials, set Hosts:
	// otherwise another site could lead its name to this machine and read the page through a visitor's browser.
	Hosts []string

	// Payload returns the text that is shown in place of a message's payload, for payloads with secrets. nil: the
	// payload is shown.
	Payload func(queue string, m *ops.MessageStatus) string

	// HungAfter is from when on a handler that runs counts as one that hangs. Default 10 min.
	HungAfter time.Duration

	// LaneAfter is from when on a lane stands still in which a message that is due waits for one that does not go on.
	// Default 5 min.
	LaneAfter time.Duration

	// Logger gets errors. Default slog.Default.
	Logger *slog.Logger
}

// A Handler is the page. It is safe for concurrent use. It reads from Redis only while a page is open, each queue
// every 2 seconds, however many pages are open.
type Handler struct {
	cli    redis.UniversalClient
	cfg    Config
	log    *slog.Logger
	csrf   *http.CrossOriginProtection
	routes map[string]*route
	poller *poller
	cache  cache
	any    *ops.Queue // keeps what is known of the servers between two looks

	errorCounts errorCounts

	clients clients       // feeds
	work    clients       // other requests, and what reads for them
	jobs    clients       // that run
	readers clients       // counts of errors that run
	exports clients       // that run
	shifts  sync.Map      // forms that begin a job which would shift messages twice if it were begun twice
	spend   time.Duration // on counting and searching, for each page
	bounds  bounds

	done context.Context // it ends with Close
	end  context.CancelFunc
}

// bounds are how long something may take. Only tests change them.
type bounds struct {
	request time.Duration // of a page, a form, or a read for the cache
	round   time.Duration // of the poller
	queue   time.Duration // of a queue in it
	find    time.Duration // how long the first round waits for the names of queues
	begin   time.Duration // within which a job does its first step

	interval time.Duration // between the starts of two rounds; longer if a round takes long
	linger   time.Duration // how long the poller goes on after the last look
}

var usualBounds = bounds{request: timeLimit, round: 5 * time.Second, queue: 2 * time.Second, find: 3 * time.Second,
	begin: 8 * time.Second, interval: 2 * time.Second, linger: 15 * time.Second}

// New makes a page. It panics, as delayqueue.NewMonitor does, if the prefix or the name of a queue is not valid.
func New(cli redis.UniversalClient, c Config) *Handler {
	if cli == nil {
		panic("delayqueue: web.New: no client")
	}
	h := &Handler{cli: cli, cfg: c, log: c.Logger, csrf: http.NewCrossOriginProtection()}
	h.clients.most, h.clients.full, h.jobs.most, h.jobs.full = maxClients, errFull, maxJobs, errJobs
	h.readers.most, h.readers.full, h.readers.each, h.readers.yours = mostReaders, errCounts, theirReaders, errYours
	h.exports.most, h.exports.full, h.exports.each, h.exports.yours = mostReaders, errExports, theirReaders, errYours
	h.cfg.Prefix, h.spend, h.bounds = cmp.Or(c.Prefix, "dq"), budgetSpend, usualBounds
	if h.log == nil {
		h.log = slog.Default()
	}
	h.done, h.end = context.WithCancel(context.Background())
	h.poller = newPoller(h)
	h.cfg.Queues = slices.Compact(slices.Sorted(slices.Values(c.Queues)))
	for _, name := range h.cfg.Queues {
		h.newMonitor(name)
	}
	h.any = h.newMonitor("x") // which panics if the prefix is not valid
	h.routes = map[string]*route{}
	for _, r := range h.allRoutes() {
		h.routes[r.name] = &r
	}
	return h
}

// Close ends the feeds and the jobs of this Handler, and waits until it reads and writes nothing more in Redis: some
// seconds at most. Later requests are refused.
func (h *Handler) Close() {
	h.end()
	h.clients.stopped()
	h.work.stopped()
	h.jobs.stopped()
	h.readers.stopped()
	h.exports.stopped()
}

// maxRead is how many bytes of a message a page reads; a message may have 511 MB.
const maxRead = 8 << 20

// newMonitor panics if the name is not valid.
func (h *Handler) newMonitor(name string) *ops.Queue {
	return ops.Of(delayqueue.NewMonitor(name, h.cli, delayqueue.UseCustomPrefix(h.cfg.Prefix))).WithReadLimit(maxRead)
}
