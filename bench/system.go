package main

import (
	"context"
	"time"
)

// The names of the systems, which are the columns of every comparison.
const (
	nameLibrary = "delayqueue"
	nameAsynq   = "asynq"
	nameFloor   = "floor"
)

// systemNames in the order of the tables.
var systemNames = []string{nameLibrary, nameAsynq, nameFloor}

// A message is what the bench sends.
type message struct {
	payload string
	delay   time.Duration // after the send; only if at is zero
	at      time.Time     // an instant
	lane    string        // of the library, with the width 1; "": none
}

// A handler is told every delivery. It is safe for concurrent use.
type handler func(payload string)

// A system moves messages through one Redis server in its own way. Its methods are safe
// for concurrent use, except close.
type system interface {
	// send sends one message.
	send(ctx context.Context, m message) error
	// sendBatch sends messages in one call, or says errors.ErrUnsupported.
	sendBatch(ctx context.Context, batch []message) error
	// consume starts a consumer with a client of its own. stop waits until what it
	// handled is acknowledged.
	consume(workers int, handle handler) (stop func(), err error)
	// left is how many messages Redis still holds.
	left(ctx context.Context) (int64, error)
	close()
}

// openers make a system on a server.
var openers = map[string]func(*network) system{
	nameLibrary: openLibrary,
	nameAsynq:   openAsynq,
	nameFloor:   openFloor,
}
