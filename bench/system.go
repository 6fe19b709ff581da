package main

import (
	"context"
	"time"
)

// The names of the systems, which are the columns of every comparison.
const (
	nameLibrary    = "delayqueue"
	nameAsynq      = "asynq"
	nameBullMQ     = "BullMQ"
	nameBeanstalkd = "beanstalkd"
	nameRiver      = "River"
	nameFloor      = "floor"
)

// systemNames are those that one process measures, in the order of the tables.
var systemNames = []string{nameLibrary, nameFloor}

// A message is what the bench sends.
type message struct {
	payload string
	delay   time.Duration // after the send; only if at is zero
	at      time.Time     // an instant
	lane    string        // of the library, with the width 1; "": none
}

// due is when it is due.
func (m message) due() time.Time {
	if m.at.IsZero() {
		return time.Now().Add(m.delay)
	}
	return m.at
}

// A handler is told every delivery, and how many retries have been charged to the message, or unknown. It is safe for
// concurrent use.
type handler func(payload string, charged int)

// unknown is what a contender says that counts no retries.
const unknown = -1

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

// openers make those on a server.
var openers = map[string]func(*network) system{
	nameLibrary: openLibrary,
	nameFloor:   openFloor,
}
