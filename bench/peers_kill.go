package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	killRounds   = 5
	killHeld     = 100 // messages in the hands of the consumer that is killed
	killBusySize = 20_000
	killTakes    = 10.0             // ms that a handler of those takes
	killPhase    = 60 * time.Second // in which the consumer is killed: no contender looks less often for what was lost
	killPatience = 200 * time.Second
)

// kill ends a consumer that has messages in hand, and measures when another one has them.
func (r *peersRun) kill(s *stand, ready func()) error {
	first := s.workers[0]
	if err := r.fill(s, killHeld, dueNow); err != nil {
		return err
	}
	hold := order{Do: "begin", N: killHeld, Workers: killHeld, Hold: true, Patience: peerPatience}
	if _, err := first.do(r.ctx, hold); err != nil {
		return err
	}
	second, err := s.hire(r.ctx)
	if err != nil {
		return err
	}
	if _, err := second.do(r.ctx, order{Do: "begin", N: killHeld, Workers: killHeld}); err != nil {
		return err
	}
	ready()
	phase, patience := r.killTimes()
	time.Sleep(rand.N(phase))
	at := float64(time.Now().UnixNano()) / 1e6
	first.kill()
	a, err := second.do(r.ctx, order{Do: "await", Patience: patience.Seconds()})
	if err != nil {
		return err
	}
	f := figures{never: float64(killHeld - a.N)}
	slices.Sort(a.Ms)
	if a.N > killHeld/2 {
		f[again50] = (quantile(a.Ms, 0.5) - at) / 1e3
	}
	if a.N == killHeld {
		f[againMax] = (quantile(a.Ms, 1) - at) / 1e3
	}
	if a.N > 0 && a.Charged != unknown {
		f[charged] = float64(a.Charged)
	}
	r.report(s, killName, peerKill, f)
	return nil
}

func (r *peersRun) killTimes() (phase, patience time.Duration) {
	if r.quick {
		return time.Second, 15 * time.Second
	}
	return killPhase, killPatience
}

// killBusy ends one of two consumers in the middle of their work, and measures what that does to the messages.
func (r *peersRun) killBusy(s *stand, ready func()) error {
	folder, err := os.MkdirTemp("", "bench-kill-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	n := killBusySize
	if r.quick {
		n /= 4
	}
	if err := r.fill(s, n, dueNow); err != nil {
		return err
	}
	if _, err := s.hire(r.ctx); err != nil {
		return err
	}
	var notes []string
	for i, w := range s.workers {
		notes = append(notes, filepath.Join(folder, strconv.Itoa(i)))
		o := order{Do: "begin", N: n, Workers: peerWorkers, Takes: killTakes, Note: notes[i]}
		if _, err := w.do(r.ctx, o); err != nil {
			return err
		}
	}
	if err := awaitNotes(notes, n/10+rand.N(n/2), peerPatience); err != nil {
		return err
	}
	at := float64(time.Now().UnixNano()) / 1e6
	s.workers[0].kill()
	h, err := readNotes(notes)
	if err == nil && len(h.messages) == n {
		err = errors.New("all messages were handled before the kill")
	}
	if err != nil {
		return err
	}
	ready()
	_, patience := r.killTimes()
	for end := time.Now().Add(patience); time.Now().Before(end) && r.ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if h, err = readNotes(notes); err != nil || len(h.messages) == n {
			break
		}
	}
	if err := errors.Join(err, r.ctx.Err()); err != nil {
		return err
	}
	f := figures{never: float64(n - len(h.messages)), twice: float64(h.times - len(h.messages))}
	if len(h.messages) == n {
		f[againMax] = max(0, h.last-at) / 1e3
	}
	r.report(s, killBusyName, peerKill, f)
	return nil
}

// handled is what the notes of consumers say.
type handled struct {
	messages map[int]bool
	times    int
	last     float64 // ms since 1970
}

func readNotes(paths []string) (handled, error) {
	h := handled{messages: map[int]bool{}}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return h, err
		}
		for line := range strings.Lines(string(text)) {
			var i int
			var ms int64
			if _, err := fmt.Sscanf(line, noteLine, &i, &ms); err != nil {
				return h, fmt.Errorf("note %q: %w", line, err)
			}
			h.messages[i] = true
			h.times++
			h.last = max(h.last, float64(ms))
		}
	}
	return h, nil
}

// awaitNotes waits for n notes. It reads the length of the files alone, so as to leave the CPU to the consumers.
func awaitNotes(paths []string, n int, patience float64) error {
	line := int64(len(fmt.Sprintf(noteLine, 0, time.Now().UnixMilli())))
	for end := time.Now().Add(time.Duration(patience * float64(time.Second))); ; time.Sleep(2 * time.Millisecond) {
		var bytes int64
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			bytes += info.Size()
		}
		if bytes >= int64(n)*line {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d messages were handled in %.0f s, want %d", bytes/line, patience, n)
		}
	}
}
