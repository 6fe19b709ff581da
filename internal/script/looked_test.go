package script

import (
	"errors"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// looked is what look and list say of a message, read.
type looked struct {
	*lookReply
	message.Delivered // as its next delivery has it, or the current one
	message.FailRecord
	broken error
}

// readOf reads an envelope and a fail record.
func readOf(l *lookReply) *looked {
	m := &looked{lookReply: l, FailRecord: message.FailRecord{Delivery: 1}}
	e, err := message.DecodeEnvelope(l.Text)
	if l.Record != "" {
		var bad error
		m.FailRecord, bad = message.ParseFail(l.Record)
		err = errors.Join(err, bad)
	}
	m.Delivered = e.Delivered(l.ID, m.FailRecord.Delivery, m.FailRecord.Failures)
	if err == nil && e.Group.Count > 0 && l.Parts != nil {
		if err = e.Group.Fill(l.Parts); err == nil {
			m.Delivered.Parts = append([]string{m.Payload}, l.Parts...)
		}
	}
	m.broken = err
	return m
}

// looks finds a message by "id" or "key"; nil if it is nowhere, or if its key is held.
func (r *rig) looks(by, what string) *looked {
	r.t.Helper()
	l, err := r.Store.Look(queuetest.CtxB, by, what, 0)
	r.equal("look", err, nil)
	if err != nil || l == nil || l.Held {
		return nil
	}
	return readOf(l)
}

// A taken delivery is what a fetch hands out, read.
type taken struct {
	lease  *Lease
	tag    string
	msg    message.Delivered
	losses int
	errors string
	broken error

	ttl, keyHold, retention time.Duration
	since                   int64
	counts                  string
	countdown               bool
	lane                    string
}

// takenOf reads the deliveries of a fetch.
func takenOf(f FetchReply) (all []taken) {
	for i, tag := range f.Tags {
		e, broken := message.DecodeEnvelope(f.Envelopes[i])
		var record message.FailRecord
		if i < len(f.Fails) && f.Fails[i] != "" {
			var err error
			record, err = message.ParseFail(f.Fails[i])
			broken = errors.Join(broken, err)
		}
		if broken == nil && (e.Group.Count > 0 || f.Parts[i] != nil) {
			broken = e.Group.Fill(f.Parts[i])
		}
		id, n := message.SplitTag(tag)
		all = append(all, taken{f.Lease, tag, e.Delivered(id, n, record.Failures), record.Losses, record.Errors, broken,
			e.TTL, e.KeyHold, e.Retention, e.Since, e.Counts, e.Countdown > 0, e.Lane.Text()})
		all[i].msg.CountdownLeft = f.Missing[i]
	}
	return all
}

func tagsTaken(ds []taken) []string { return conc.Mapped(ds, func(d *taken) string { return d.tag }) }

// ends is the settlement of a delivery. An ack is made as the message wants it.
func (d *taken) ends(kind OutcomeKind) Settlement {
	s := Settlement{Lease: d.lease, Tag: d.tag, ID: d.msg.ID, Key: d.msg.Key, Number: d.msg.Delivery, Kind: kind,
		Failures: d.msg.Failures, Losses: d.losses, Errors: d.errors, Lane: d.lane}
	if kind != OutcomeAck {
		return s
	}
	s.Counts, s.Countdown = d.counts, d.countdown
	if s.Parts = len(d.msg.Parts); s.Key != "" {
		s.Hold = d.keyHold
	}
	if d.retention > 0 {
		s.Kind, s.Delay = OutcomeDone, d.retention
	}
	return s
}

// fails makes a settlement that of a failure.
func (s Settlement) fails(text string) Settlement {
	s.Failed, s.Failures, s.Losses, s.Text = true, s.Failures+1, 0, text
	return s
}
