package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

// soakRate is how many messages a second a soak sends.
const soakRate = 400

// soakStrikes are what a soak picks from.
var soakStrikes = []func(t *trial){
	(*trial).killConsumer,
	func(t *trial) { t.freeze(t.anyConsumer()) },
	restartServer,
	flushScripts,
	(*trial).loseReply,
	during(800*time.Millisecond, func(t *trial) { t.wire.Cut() }, func(t *trial) { t.wire.Mend() }),
	during(time.Second, func(t *trial) { t.wire.Freeze() }, func(t *trial) { t.wire.Thaw() }),
	during(2*time.Second, func(t *trial) { t.wire.SetDelay(200 * time.Millisecond) }, func(t *trial) {
		t.wire.SetDelay(0)
	}),
	during(2*time.Second, func(t *trial) { t.wire.SetTrickle(true) }, func(t *trial) { t.wire.SetTrickle(false) }),
	onConnections(func(t *trial) int { return t.wire.HalfOpen() }),
	onConnections(func(t *trial) int { return t.wire.HangUp() }),
}

// soak loads one queue for so many minutes while anything strikes.
func soak(ctx context.Context, minutes int) error {
	length := time.Duration(minutes) * time.Minute
	s := scenario{
		name:  "soak",
		setUp: wired("--appendonly", "yes", "--appendfsync", "always"),
		load: func(l *load) {
			longLease(l)
			l.Over, l.Messages = length, int(length.Seconds())*soakRate
		},
		hit: func(t *trial) {
			soakStrikes[rand.IntN(len(soakStrikes))](t)
			t.wait(rand.N(2 * time.Second))
		},
		every: 3 * time.Second, // in which all find back
	}
	fmt.Printf("soak of %v\n", length)
	v, err := runTrial(ctx, &s)
	if err != nil {
		return err
	}
	rows := []row{{&s, v}}
	printTable(os.Stdout, rows)
	if len(v.problems) > 0 {
		return fmt.Errorf("%d things are wrong", len(v.problems))
	}
	text := fmt.Sprintf(
		"\n%s. %v, with %d messages a second. Every 3 to 5 s one of these faults strikes at random: a consumer is killed, "+
			"or frozen past its lease. Redis is killed and started again (appendfsync always), or its scripts are flushed. A "+
			"reply is lost. Connections are cut, frozen, slow, one byte at a time, half open, or closed on one side.\n\n| %s "+
			"|\n|%s\n| %s |\n\nDuplicates: %s.\n",
		about(), length, soakRate, strings.Join(head, " | "), strings.Repeat("--:|", len(head)),
		strings.Join(rows[0].cells(), " | "),
		strings.Join(v.causes, ", or "))
	return writePart(document, soakPart, text)
}
