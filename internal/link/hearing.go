package link

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/redis/go-redis/v9"
)

// This file subscribes to a channel of the server that holds a queue. Redis keeps nothing for a subscriber who is
// away, so a broken connection is noticed soon, and its subscriber is told when there is another one.

const (
	// pingInterval is how often a connection that hears events is asked for a sign of life. If nothing comes for the
	// time of silence, it is taken for broken.
	pingInterval = time.Second
	silence      = 3 * time.Second
	// connectTimeout bounds an attempt to connect anew.
	connectTimeout = 5 * time.Second
)

// A Subscriber hears what is published on one channel, over one connection after the other.
type Subscriber struct {
	server  *Server
	channel string
	first   *hearing
}

// Subscribe subscribes to a channel, and is tried like a Read. The caller calls Forward.
func (s *Server) Subscribe(ctx context.Context, channel string) (*Subscriber, error) {
	u := &Subscriber{server: s, channel: channel}
	first, err := Read(ctx, u.connect)
	if err != nil {
		return nil, err
	}
	u.first = first
	return u, nil
}

// connect makes a connection to the server that holds the queue, until ctx ends.
func (u *Subscriber) connect(ctx context.Context) (*hearing, error) {
	var made *hearing
	err := callUntil(ctx, func() (err error) { // a client of another kind waits for its own timeouts
		made, err = u.dial(ctx)
		return err
	})
	if err != nil {
		return nil, cmp.Or(Ended(ctx), err) // a dial that goes on may set made, which it closes then
	}
	return made, nil
}

func (u *Subscriber) dial(ctx context.Context) (_ *hearing, err error) {
	h := new(hearing)
	if u.server.Link == nil {
		h.PubSub = u.server.Cli.Subscribe(ctx) // to nothing yet, for which it needs no connection
	} else {
		if h.cli, err = u.server.Dedicated(ctx); err != nil {
			return nil, err
		}
		h.PubSub = h.cli.Subscribe(ctx)
	}
	goesOn := context.AfterFunc(ctx, h.close)
	calls := context.WithoutCancel(ctx) // a deadline would be that of a read, which may end before ctx does
	if err = h.Subscribe(calls, u.channel); err == nil {
		_, err = h.Receive(calls) // the confirmation
	}
	if !goesOn() || err != nil {
		h.close()
		return nil, cmp.Or(err, ctx.Err())
	}
	return h, nil
}

// reconnect makes a connection in place of one that broke. It returns nil if ctx ends, or the user has closed the
// client. It calls failing at most once a minute, with the number of attempts that have failed.
func (u *Subscriber) reconnect(ctx context.Context, failing func(attempts int, err error)) (h *hearing) {
	if ctx.Err() != nil {
		return nil
	}
	u.server.lookAgain(ctx, errUnanswered)
	failed := conc.MinuteCount{Logged: time.Now()}
	_ = Retry(ctx, nil, func() (err error) {
		bounded, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		if h, err = u.connect(bounded); err != nil {
			u.server.lookAgain(bounded, err)
		}
		return err
	}, func(_ int, err error) bool {
		if n := failed.Add(1, time.Now()); n > 0 {
			failing(n, err)
		}
		return !errors.Is(err, redis.ErrClosed)
	})
	return h
}

// Forward calls heard for what is published, until ctx ends or the user has closed the client. It calls missed when
// it has another connection after one that broke, and failing as reconnect does.
func (u *Subscriber) Forward(ctx context.Context, heard func(payload string), missed func(),
	failing func(attempts int, err error)) {
	for h := u.first; ; missed() {
		begun := time.Now()
		h.hear(ctx, u.server.Link, heard)
		Sleep(ctx, pingInterval-time.Since(begun)) // a server that closes each new connection is not asked all the time
		if h = u.reconnect(ctx, failing); h == nil {
			return
		}
	}
}

// A hearing is one connection of a subscriber. It is the library's own, if the client can have a link. go-redis does
// not make it anew: it would do so without a word of what was missed, on a server that may hold the queue no more.
type hearing struct {
	*redis.PubSub
	cli *DedicatedClient // of this connection; nil: it is the user's
}

// close ends what is under way on the connection, and closes it. A second call does nothing.
func (h *hearing) close() {
	if h.cli != nil {
		h.cli.Cut()
		_ = h.cli.Close() // whatever it says, it is over
	}
	_ = h.PubSub.Close()
}

// hear receives what is published, until the connection breaks, is silent for too long, ctx ends, or the user has
// closed the client. Then it is closed.
func (h *hearing) hear(ctx context.Context, l *Link, heard func(payload string)) {
	defer context.AfterFunc(ctx, h.close)()
	over := make(chan struct{})
	var pings sync.WaitGroup
	pings.Go(func() { h.ping(over, l) })
	defer pings.Wait()
	defer h.close()
	defer close(over)
	for {
		got, err := h.ReceiveTimeout(ctx, silence)
		if err != nil {
			return
		}
		if msg, ok := got.(*redis.Message); ok {
			heard(msg.Payload)
		}
	}
}

// ping asks for a sign of life now and then, until over is closed, or the user has closed the client.
func (h *hearing) ping(over <-chan struct{}, l *Link) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for l == nil || !l.ownerClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), pingInterval)
		_ = h.Ping(ctx) // if that fails, nothing comes
		cancel()
		select {
		case <-tick.C:
		case <-over:
			return
		}
	}
	h.close()
}
