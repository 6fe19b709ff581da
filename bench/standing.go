package main

import "time"

// idle measures what a consumer with nothing to do costs.
func idle(over time.Duration) func(t *trial) error {
	return func(t *trial) error {
		stop, err := t.sys.consume(1, func(string) {})
		if err != nil {
			return err
		}
		defer stop()
		return t.standStill(time.Second, over)
	}
}

// standStill reports what is used while nothing is to be done, once all has settled down.
func (t *trial) standStill(settle, over time.Duration) error {
	time.Sleep(settle)
	c, err := t.meter.of(t.ctx, func() error { time.Sleep(over); return nil })
	if err != nil {
		return err
	}
	seconds := c.wall.Seconds()
	t.report(t.what.name, t.what.kind, figures{
		commandsSecond: c.commands / seconds, tripsSecond: c.trips / seconds,
		redisShare: 100 * c.redisCPU.Seconds() / seconds, clientShare: 100 * c.clientCPU.Seconds() / seconds,
	})
	return nil
}

// memory measures what a pending message takes on the server.
func memory(others, asynq int) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(1); err != nil {
			return err
		}
		before, err := t.meter.usedMemory(t.ctx)
		if err != nil {
			return err
		}
		n := t.size(others, asynq)
		if err := t.fill(n, func(i int) message { return hourly(payload(i)) }); err != nil {
			return err
		}
		after, err := t.meter.usedMemory(t.ctx)
		if err != nil {
			return err
		}
		t.report(t.what.name, t.what.kind, figures{bytesEach: float64(after-before) / float64(n)})
		return t.onlyLeft(int64(n))
	}
}
