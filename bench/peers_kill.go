package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
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
func (r *peersRun) kill(s *stand, t *turn) error {
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
	t.leave()
	phase, patience := r.killTimes()
	link.Sleep(r.ctx, rand.N(phase))
	if a, err := second.do(r.ctx, order{Do: "await"}); err != nil {
		return err
	} else if a.N > 0 {
		return fmt.Errorf("%d messages came to another consumer before the kill", a.N)
	}
	at := float64(time.Now().UnixNano()) / 1e6
	first.kill()
	a, err := second.do(r.ctx, order{Do: "await", Patience: patience.Seconds()})
	if err != nil {
		return err
	}
	f := figures{never: float64(killHeld - a.N), again50: math.Inf(1), againMax: math.Inf(1)}
	slices.Sort(a.Ms)
	if a.N > killHeld/2 {
		f[again50] = (a.Ms[killHeld/2-1] - at) / 1e3
	}
	if a.N == killHeld {
		f[againMax] = (a.Ms[killHeld-1] - at) / 1e3
	}
	if a.N == 0 {
		f[charged] = math.NaN() // nobody has seen it
	} else if a.Charged != unknown {
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
func (r *peersRun) killBusy(s *stand, t *turn) error {
	folder, err := os.MkdirTemp("", "bench-kill-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	n := killBusySize
	if r.quick {
		n /= 4
	}
	if _, err := s.hire(r.ctx); err != nil {
		return err
	}
	h := handled{messages: map[int]int{}}
	for i, w := range s.workers {
		h.files = append(h.files, &note{path: filepath.Join(folder, strconv.Itoa(i))})
		o := order{Do: "begin", N: n, Workers: peerWorkers, Takes: killTakes, Note: h.files[i].path}
		if _, err := w.do(r.ctx, o); err != nil {
			return err
		}
	}
	t.leave()
	phase, patience := r.killTimes()
	link.Sleep(r.ctx, phase+rand.N(phase)) // when those that kill has killed have gone
	t.enter()
	if err := r.fill(s, n, dueNow); err != nil {
		return err
	}
	if err := h.await(n/10+rand.N(n/2), peerPatience); err != nil {
		return err
	}
	at := float64(time.Now().UnixNano()) / 1e6
	s.workers[0].kill()
	if err := h.read(); err != nil {
		return err
	}
	if len(h.messages) == n {
		return errors.New("all messages were handled before the kill")
	}
	t.leave()
	left := n
	for end := time.Now().Add(patience); left > 0 && time.Now().Before(end); {
		link.Sleep(r.ctx, time.Second)
		a, err := s.workers[1].do(r.ctx, order{Do: "left"})
		if err != nil {
			return err
		}
		left = a.N
	}
	if err := h.read(); err != nil {
		return err
	}
	// What is left although it was handled is handled again later.
	missing := n - len(h.messages)
	f := figures{never: float64(missing), againMax: math.Inf(1),
		twice: float64(h.times - len(h.messages) + left - missing)}
	if missing == 0 {
		f[againMax] = max(0, h.last-at) / 1e3
	}
	r.report(s, killBusyName, peerKill, f)
	return nil
}

// handled is what the notes of consumers say.
type handled struct {
	files    []*note
	messages map[int]int // how often each was handled
	times    int
	last     float64 // ms since 1970; when the last message was handled for the first time
}

// A note is a file to which a consumer adds a line for each message.
type note struct {
	path string
	read int // bytes
}

// read reads what is new. A line without an end is one that is being written, or that a kill has cut off.
func (h *handled) read() error {
	for _, f := range h.files {
		text, err := os.ReadFile(f.path)
		if err != nil {
			return err
		}
		text = text[f.read:]
		text = text[:bytes.LastIndexByte(text, '\n')+1]
		f.read += len(text)
		for line := range bytes.Lines(text) {
			var i int
			var ms int64
			if _, err := fmt.Sscanf(string(line), noteLine, &i, &ms); err != nil {
				return fmt.Errorf("note %q: %w", line, err)
			}
			if h.messages[i]++; h.messages[i] == 1 {
				h.last = max(h.last, float64(ms))
			}
			h.times++
		}
	}
	return nil
}

// await waits for n notes. It reads the length of the files alone, so as to leave the CPU to the consumers.
func (h *handled) await(n int, patience float64) error {
	line := int64(len(fmt.Sprintf(noteLine, 0, time.Now().UnixMilli())))
	for end := time.Now().Add(time.Duration(patience * float64(time.Second))); ; time.Sleep(2 * time.Millisecond) {
		var bytes int64
		for _, f := range h.files {
			info, err := os.Stat(f.path)
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
