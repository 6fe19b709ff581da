package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	during(2*time.Second, func(t *trial) { t.wire.SetDelay(200 * time.Millisecond) }, func(t *trial) { t.wire.SetDelay(0) }),
	during(2*time.Second, func(t *trial) { t.wire.SetTrickle(true) }, func(t *trial) { t.wire.SetTrickle(false) }),
	onConnections(func(t *trial) int { return t.wire.HalfOpen() }),
	onConnections(func(t *trial) int { return t.wire.HangUp() }),
}

// soak loads one queue for so many minutes while anything strikes, and draws what was taken up.
func soak(ctx context.Context, minutes int, out string) error {
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
	p := newProgress(os.Stdout, 1)
	p.begin(fmt.Sprintf("soak of %v", length))
	watch := &soakWatch{}
	v, err := runTrial(ctx, &s, func(t *trial) {
		p.show(t)
		watch.look(t)
	})
	p.end()
	watch.wg.Wait()
	if err != nil {
		return err
	}
	rows := []row{{&s, v}}
	printTable(os.Stdout, rows)
	if len(v.problems) > 0 {
		return fmt.Errorf("%d things are wrong", len(v.problems))
	}
	const file = "soak.svg"
	text := fmt.Sprintf("\n%s. %v, with %d messages a second. Every 3 to 5 s one of these faults strikes at random: a consumer is killed, "+
		"or frozen past its lease. Redis is killed and started again (appendfsync always), or its scripts are flushed. A reply is lost. "+
		"Connections are cut, frozen, slow, one byte at a time, half open, or closed on one side.\n\n| %s |\n|%s\n| %s |\n\nDuplicates: %s.\n\n![memory, goroutines, backlog and lateness over time](%s)\n",
		about(), length, soakRate, strings.Join(head, " | "), strings.Repeat("--:|", len(head)), strings.Join(rows[0].cells(), " | "),
		strings.Join(v.causes, ", or "), file)
	if err := writePart(out, soakPart, text); err != nil {
		return err
	}
	if err := watch.draw(filepath.Join(out, file)); err != nil {
		return err
	}
	fmt.Printf("\nwritten: %s\n", out)
	return nil
}

// A sample is what is taken up at an instant.
type sample struct {
	at         float64 // minutes
	memory     float64 // MB, of the server
	goroutines float64 // of the consumer that has most
	backlog    float64 // messages
	late       float64 // ms, 99th percentile of first deliveries since the last sample
}

// soakWatch takes a sample each second, beside the trial, for Redis may be away.
type soakWatch struct {
	wg      sync.WaitGroup
	begun   time.Time
	samples []sample
	busy    sync.Mutex

	seen int              // entries
	due  map[string]int64 // of messages that were not started yet
}

// look takes a sample unless the last one is a moment old or still under way.
func (w *soakWatch) look(t *trial) {
	t.mu.Lock()
	stage := t.stage
	t.mu.Unlock()
	if stage != "strikes" && stage != "sends the rest" || !w.busy.TryLock() {
		return
	}
	if w.begun.IsZero() {
		w.begun, w.due = time.Now(), map[string]int64{}
	}
	now := time.Since(w.begun)
	if n := len(w.samples); n > 0 && now.Minutes()-w.samples[n-1].at < time.Second.Minutes() {
		w.busy.Unlock()
		return
	}
	w.wg.Go(func() {
		defer w.busy.Unlock()
		if s, ok := w.take(t); ok {
			s.at = now.Minutes()
			w.samples = append(w.samples, s)
		}
	})
}

// take takes a sample, if Redis answers.
func (w *soakWatch) take(t *trial) (s sample, ok bool) {
	ctx, cancel := context.WithTimeout(t.ctx, time.Second)
	defer cancel()
	info, err := t.admin.InfoMap(ctx, "memory").Result()
	if err != nil {
		return s, false
	}
	var bytes float64
	if _, err := fmt.Sscan(info["Memory"]["used_memory"], &bytes); err != nil {
		return s, false
	}
	s.memory = bytes / (1 << 20)
	n, err := t.admin.HLen(ctx, key("msg")).Result()
	if err != nil {
		return s, false
	}
	s.backlog = float64(n)
	entries := t.books.all()
	var late []float64
	for _, e := range entries[w.seen:] {
		switch {
		case e.Kind == sent:
			w.due[e.ID] = e.Due
		case e.Kind == started && w.due[e.ID] != 0:
			late = append(late, float64(e.At-w.due[e.ID])/1000)
			delete(w.due, e.ID)
		case e.Kind == standing && strings.HasPrefix(e.who, consumer):
			s.goroutines = max(s.goroutines, float64(e.Count))
		}
	}
	w.seen = len(entries)
	if len(late) > 0 {
		slices.Sort(late)
		s.late = late[len(late)*99/100]
	}
	return s, true
}
