package main

import (
	"slices"
	"strings"
	"time"
)

// Chains: a handler that succeeds names the next message (Then), which is sent if and only if the delivery is acked.
// So each message that was acked is followed by one, and no other is.
var chains = []scenario{
	{
		name:  "chains: consumers killed, replies lost",
		holds: "each message that was acked is followed once, and no other is",
		setUp: wired(),
		load:  chained,
		hit: func(t *trial) {
			t.loseReply()
			if len(t.strikes)%8 == 0 {
				t.killConsumer()
			}
		},
		every: 20 * time.Millisecond,
		rules: rules{links: links},
	},
	{
		name:  "chains: consumer frozen past its lease",
		holds: "what its late handlers named is void",
		load: func(l *load) {
			chained(l)
			l.Slow, l.Workers, l.RunOn = 6*time.Second, 96, true
		},
		hit:   func(t *trial) { t.freeze(t.consumers[0]) },
		every: 2 * time.Second,
		rules: rules{links: links},
		check: func(t *trial, v *verdict) {
			if n := t.logged("settlements came too late"); n == 0 {
				v.problem("no settlement came too late")
			}
		},
	},
	{
		name:  "chains: Sentinel: primary killed",
		holds: "no chain breaks; what the promoted replica did not have is followed anew",
		setUp: sentinel,
		load:  confirmed(0, chained),
		hit:   killPrimary(unreplicated),
		times: 1,
		rules: rules{links: links, resume: 5 * time.Second, lossy: notThereYet, duplicate: unheard},
	},
}

const (
	links     = 2   // messages that follow each that a producer sends
	linkMark  = ">" // at the end of a payload, one for each link before it
	linkDelay = 500 * time.Millisecond
)

func chained(l *load) { l.Messages, l.Links = usual.Messages/(1+links), links }

// linkOf is how many links there are before a payload.
func linkOf(payload string) int { return strings.Count(payload, linkMark) }

// link judges what follows what, and lets followers count as sent messages from here on.
func (v *verdict) link(ev *evidence, stories []*story) {
	if ev.rules.links == 0 {
		return
	}
	byPayload := map[string]*story{}
	for _, s := range stories { // a message comes before what follows it
		byPayload[s.payload] = s
		if linkOf(s.payload) > 0 {
			v.weighFollower(ev, byPayload[strings.TrimSuffix(s.payload, linkMark)], s)
		}
	}
	for _, s := range stories {
		last := s.lastSuccess()
		if last == nil || linkOf(s.payload) == ev.rules.links || byPayload[s.payload+linkMark] != nil {
			continue
		}
		if poison := ev.state.Where(last.start.ID) == "garbage"; poison {
			continue // it was lost with its consumer before its ack
		}
		if ev.wipedOut(&entry{At: last.until(), ID: last.start.ID}) == "" {
			v.problem("%s: acked and not followed", s.payload)
		}
	}
}

// weighFollower judges the message that follows another one.
func (v *verdict) weighFollower(ev *evidence, before, s *story) {
	if before == nil || before.lastSuccess() == nil {
		v.problem("%s: follows what was never handled to its end", s.payload)
		return
	}
	first := s.runs[0].start
	if !slices.ContainsFunc(before.runs, func(r run) bool { return r.word() == succeeded && r.end.At <= first.At }) {
		v.problem("%s: handed out at %s, before %s had ended", s.payload, clock(first.At), before.payload)
	}
	if before.sent != nil && ev.state.Where(before.sent.ID) == "garbage" {
		v.problem("%s: follows what is in garbage", s.payload)
	}
	// Where Redis has forgotten an ack, it has forgotten what was sent with it: then the message is handled once more, and
	// followed anew.
	v.dropForgotten(ev, s, before.payload+" was followed")
	s.adopt(ev)
}

// dropForgotten leaves a story the runs of the last of its messages. The ones before are such as Redis has forgotten;
// what says of what there would have been two.
func (v *verdict) dropForgotten(ev *evidence, s *story, what string) {
	lastID := s.runs[len(s.runs)-1].start.ID
	for i, r := range s.runs {
		if r.start.ID == lastID {
			s.runs = s.runs[i:]
			return
		}
		next := s.runs[i+1]
		if next.start.ID == r.start.ID {
			continue
		}
		v.duplicated++
		if !ev.forgot(r, next) {
			v.problem("%s: %s twice, by %s and %s", s.payload, what, r.start.ID, next.start.ID)
		}
	}
}

// adopt takes the first run for what tells that the message was accepted.
func (s *story) adopt(ev *evidence) {
	first := s.runs[0].start
	s.sent = &entry{Kind: sent, At: first.At, Payload: s.payload, ID: first.ID, Due: ev.server(first.At)}
}

// lastSuccess is the last run that came to its end; nil: none did.
func (s *story) lastSuccess() *run {
	for i := range slices.Backward(s.runs) {
		if s.runs[i].word() == succeeded {
			return &s.runs[i]
		}
	}
	return nil
}

// forgot says whether Redis may have forgotten a run, and what came before it, when the next one began.
func (ev *evidence) forgot(r, next run) bool {
	return slices.ContainsFunc(ev.strikes, func(st strike) bool {
		return st.who == "" && st.why != "" && st.to >= r.start.At && st.from <= next.start.At
	})
}
