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

// fairness measures the time from a send into a lane of its own to its handler, at a steady rate, without and with a
// backlog of another lane, of which one message is handled at a time.
func fairness(n, perSecond int, over time.Duration) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(senders); err != nil {
			return err
		}
		others := func(i int) string { return fmt.Sprint("tenant-", 1+i%(tenants-1)) }
		if err := t.sendSteadily(lanesName(0), perSecond, over, others); err != nil {
			return err
		}
		behind := message{payload: fillerOfBacklog, lane: backlogTenant}
		if err := t.fill(t.size(n), func(int) message { return behind }); err != nil {
			return err
		}
		if err := t.sendSteadily(lanesName(laneBacklog), perSecond, over, others); err != nil {
			return err
		}
		if left, err := t.sys.left(t.ctx); err != nil || left == 0 {
			return fmt.Errorf("the backlog was over too soon, or unknown: %w", err)
		}
		return nil
	}
}
