package main

import (
	"fmt"
	"strings"
	"time"
)

// tenants have a lane each. One of them has a backlog.
const tenants = 1000

const backlogTenant = "tenant-0"

// lanesName is the row of the other tenants while one has so many messages that are due.
func lanesName(backlog int) string {
	return fmt.Sprintf("999 lanes, %s due in another", count(backlog))
}

// laneBacklog is how many messages are due in one lane.
const laneBacklog = 500_000

var fillerOfBacklog = strings.Repeat("b", payloadSize)

// fairness measures the time from a send into a lane of its own to its handler, at a steady rate, without and with a backlog of another lane,
// of which one message is handled at a time.
func fairness(n, perSecond int, over time.Duration) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(senders); err != nil {
			return err
		}
		if err := t.sendSteadily(lanesName(0), perSecond, over); err != nil {
			return err
		}
		behind := message{payload: fillerOfBacklog, lane: backlogTenant}
		if err := t.fill(t.size(n, 0), func(int) message { return behind }); err != nil {
			return err
		}
		if err := t.sendSteadily(lanesName(laneBacklog), perSecond, over); err != nil {
			return err
		}
		if left, err := t.sys.left(t.ctx); err != nil || left == 0 {
			return fmt.Errorf("the backlog was over too soon, or unknown: %w", err)
		}
		return nil
	}
}

// sendSteadily sends to all tenants in turn but for the first, and reports how late their messages were.
func (t *trial) sendSteadily(name string, perSecond int, over time.Duration) error {
	n := int(float64(perSecond) * over.Seconds())
	seen := newLateTally(n)
	stop, err := t.sys.consume(senders, func(payload string) {
		if payload != fillerOfBacklog {
			seen.handle(payload)
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	begun := time.Now()
	err = t.sendAll(senders, n, func(i int) message {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		seen.due[i] = time.Now() // the handler reads it after Redis has had the message
		return message{payload: payload(i), lane: fmt.Sprint("tenant-", 1+i%(tenants-1))}
	})
	if err != nil {
		return err
	}
	if err := t.await(seen.tally); err != nil {
		return err
	}
	t.report(name, t.what.kind, seen.figures())
	return nil
}
