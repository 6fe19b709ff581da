package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/typed"
	"github.com/redis/go-redis/v9"
)

const (
	queueName  = "example-order-timeout"
	orderKey   = "example-order:"        // + id: a hash with item, closes_at and, in the end, state
	counterKey = "example-order-counter" // the last id
	keep       = 24 * time.Hour          // how long an order is remembered after its timeout
	maxTimeout = 365 * 24 * time.Hour
)

// The states of an order. Paid and closed are final.
const (
	open   = "open"
	paid   = "paid"
	closed = "closed"
)

// decide gives an order its final state, unless it has one, and returns the one it has
// then; "" if there is no such order. Paying and closing both go through it, so exactly
// one of them wins, however often and in how many processes they are tried.
//
// KEYS: 1 the order. ARGV: 1 the state wanted.
var decide = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return '' end
redis.call('HSETNX', KEYS[1], 'state', ARGV[1])
return redis.call('HGET', KEYS[1], 'state')`)

// closeOrder is sent with every order, and due when that must be paid.
var closeOrder = typed.Kind[unpaid]("close-order")

type unpaid struct {
	ID string `json:"id"`
}

// service keeps orders in Redis and their timeouts in a queue.
type service struct {
	cli     *redis.Client
	queue   *delayqueue.DelayQueue
	timeout time.Duration
	log     *log.Logger
}

func newService(cli *redis.Client, timeout time.Duration, log *log.Logger) *service {
	s := &service{cli: cli, timeout: timeout, log: log}
	mux := typed.NewMux()
	typed.Handle(mux, closeOrder, s.close)
	s.queue = delayqueue.NewQueue(queueName, cli, nil).
		WithHandler(mux.Handler).
		WithConcurrent(8).
		// A timeout may not be given up on while Redis has a bad hour.
		WithDefaultRetryCount(1000).
		WithRetryDelays(time.Second, 10*time.Second, time.Minute)
	return s
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.create)
	mux.HandleFunc("GET /orders/{id}", s.get)
	mux.HandleFunc("POST /orders/{id}/pay", s.pay)
	return bounded(mux)
}

// bounded gives each request 5 s. The context of a request has no end of its own while its client waits, and a send
// tries until its context ends: without a bound, requests would pile up while Redis is away.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// An order as clients see it.
type order struct {
	ID       string    `json:"id"`
	Item     string    `json:"item"`
	State    string    `json:"state"`
	ClosesAt time.Time `json:"closes_at"` // if it is not paid before
}

func (s *service) create(w http.ResponseWriter, r *http.Request) {
	var body struct{ Item string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&body); err != nil || body.Item == "" {
		refuse(w, http.StatusBadRequest, `the body must be like {"item": "tea"}`)
		return
	}
	o, err := s.place(r.Context(), body.Item)
	if err != nil {
		s.trouble(w, "create", err)
		return
	}
	s.log.Printf("order %s: %q, closes in %v", o.ID, o.Item, s.timeout)
	w.Header().Set("Location", "/orders/"+o.ID)
	answer(w, http.StatusCreated, o)
}

// place stores an order and sends its timeout. The order comes first: a timeout that finds
// none does nothing, whereas an order without a timeout would stay open.
func (s *service) place(ctx context.Context, item string) (*order, error) {
	n, err := s.cli.Incr(ctx, counterKey).Result()
	if err != nil {
		return nil, err
	}
	id := strconv.FormatInt(n, 10)
	key := orderKey + id
	closesAt := time.Now().Add(s.timeout)
	_, err = s.cli.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key, "item", item, "closes_at", closesAt.Format(time.RFC3339Nano))
		p.Expire(ctx, key, s.timeout+keep)
		return nil
	})
	if err != nil {
		return nil, err
	}
	// The key is what another process knows the message by. An instant and not a delay, so
	// that what the client is told, what is stored and what happens are one.
	_, err = closeOrder.Send(ctx, s.queue, unpaid{id}, delayqueue.WithKey("order-"+id), delayqueue.WithSchedule(closesAt))
	if err != nil {
		// The client will not hear of this order. If its timeout got through all the
		// same, that finds nothing.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		s.cli.Del(ctx, key)
		return nil, err
	}
	return &order{ID: id, Item: item, State: open, ClosesAt: closesAt}, nil
}

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	o, err := s.load(r.Context(), r.PathValue("id"))
	switch {
	case err != nil:
		s.trouble(w, "get", err)
	case o == nil:
		refuse(w, http.StatusNotFound, "there is no such order")
	default:
		answer(w, http.StatusOK, o)
	}
}

// load returns nil if there is no such order.
func (s *service) load(ctx context.Context, id string) (*order, error) {
	fields, err := s.cli.HGetAll(ctx, orderKey+id).Result()
	if err != nil || len(fields) == 0 {
		return nil, err
	}
	o := &order{ID: id, Item: fields["item"], State: fields["state"]}
	if o.State == "" {
		o.State = open
	}
	if o.ClosesAt, err = time.Parse(time.RFC3339Nano, fields["closes_at"]); err != nil {
		return nil, fmt.Errorf("order %s: %w", id, err)
	}
	return o, nil
}

// pay decides first and takes the timeout back then. The other way round, a crash in
// between would leave an open order without a timeout; this way it leaves a timeout that
// finds the order paid.
func (s *service) pay(w http.ResponseWriter, r *http.Request) {
	ctx, id := r.Context(), r.PathValue("id")
	state, err := decide.Run(ctx, s.cli, []string{orderKey + id}, paid).Text()
	switch {
	case err != nil:
		s.trouble(w, "pay", err)
		return
	case state == "":
		refuse(w, http.StatusNotFound, "there is no such order")
		return
	case state == closed:
		refuse(w, http.StatusConflict, "too late: the order is closed")
		return
	}
	// Paying twice comes here again and answers the same: a client may repeat.
	took, err := s.queue.InterceptKey(ctx, "order-"+id)
	switch {
	case err != nil: // no harm: see above
		s.log.Printf("order %s: paid, its timeout stays: %v", id, err)
	case took.Intercepted:
		s.log.Printf("order %s: paid, its timeout was %v and is taken back", id, took.State)
	case took.State == delayqueue.StateUnack: // its handler will find the order paid
		s.log.Printf("order %s: paid, its timeout is being handled", id)
	default:
		s.log.Printf("order %s: paid, there was no timeout to take back", id)
	}
	answer(w, http.StatusOK, map[string]string{"id": id, "state": paid})
}

// close is the handler of closeOrder. It may run more than once for an order, also while
// the order is being paid.
func (s *service) close(ctx context.Context, order unpaid, msg *delayqueue.Message) error {
	id := order.ID
	state, err := decide.Run(ctx, s.cli, []string{orderKey + id}, closed).Text()
	switch {
	case err != nil:
		return fmt.Errorf("order %s: %w", id, err) // comes again
	case state == closed:
		// What closing an order takes goes here: give the goods back, tell the customer. It
		// must bear being done twice, for this process may die before it returns.
		s.log.Printf("order %s: closed, %.2f ms after its time", id, time.Since(msg.Due).Seconds()*1000)
	case state == "":
		s.log.Printf("order %s: its timeout found no such order", id)
	default:
		s.log.Printf("order %s: its timeout found it %s", id, state)
	}
	return nil
}

func (s *service) trouble(w http.ResponseWriter, what string, err error) {
	s.log.Printf("%s: %v", what, err)
	refuse(w, http.StatusServiceUnavailable, "the orders cannot be reached, try again")
}

func refuse(w http.ResponseWriter, status int, why string) {
	answer(w, status, map[string]string{"error": why})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have left
}
