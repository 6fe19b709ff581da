package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// Imports: the first message of each import, its parent, waits until all rows of the import are acked
// (WithCountdown). The rows are the messages that follow, and the handler of each adds it to the sums of its import
// (Then with Append). The parent and its rows are one sequence, so a producer that follows a killed one sends no row
// twice.
var imports = []scenario{
	{
		name: "imports: consumers and producers killed, replies lost",
		holds: "200 imports of 500 rows: each parent is handled when all rows of its import are acked, or at its time " +
			"limit, and never later; each row that is acked is in the sums of its import, once",
		setUp: wired(),
		load:  imported,
		hit:   losing(4*often, (*trial).killConsumer, (*trial).killProducer),
		every: 20 * time.Millisecond,
		rules: rules{imports: importCount, rows: 1 + importRows},
		check: wantBothEnds,
	},
	{
		name:  "imports: consumer frozen past its lease",
		holds: "and the same: the acks of its late handlers count nothing, and what these added is void",
		load: func(l *load) {
			imported(l)
			l.Slow, l.Workers, l.RunOn = 2*time.Second, 96, true
		},
		hit:   func(t *trial) { t.freeze(t.consumers[0]) },
		every: 2 * time.Second,
		rules: rules{imports: importCount, rows: 1 + importRows},
		check: func(t *trial, v *verdict) {
			wantBothEnds(t, v)
			if n := t.logged("settlements came too late"); n == 0 {
				v.problem("no settlement came too late")
			}
		},
	},
	{
		name: "imports: Sentinel: primary killed, WithReplicaAck(1)",
		holds: "and the same, beside consumers and producers that are killed: what the promoted replica had not heard of, " +
			"it forgets together: an ack, its count, and what it added",
		setUp: sentinel,
		load:  confirmed(1, imported, keeping),
		hit:   amongKills((*trial).failOver),
		times: 1,
		rules: rules{imports: importCount, rows: 1 + importRows, resume: 5 * time.Second, duplicate: unheard},
		check: wantForgottenAcks,
	},
	{
		name:  "imports: Cluster: primary killed, WithReplicaAck(1)",
		holds: "and the same",
		setUp: cluster,
		load:  confirmed(1, imported, keeping),
		hit:   amongKills((*trial).failOverCluster),
		times: 1,
		rules: rules{imports: importCount, rows: 1 + importRows, resume: 5 * time.Second, duplicate: unheard},
		check: wantForgottenAcks,
	},
}

const (
	importCount = 200
	importRows  = 500             // of each, beside its parent
	importTakes = 3 * time.Second // to be sent
	parentRow   = 1               // the number of the parent

	sumPrefix = "sum of " // in keys, before the name of an import
	sumParts  = 200       // of one sum at most; an import has several
	sumQuiet  = 500 * time.Millisecond
	sumWait   = 3 * sumQuiet
)

func imported(l *load) {
	l.Imports, l.Rows, l.Messages = importCount, 1+importRows, importCount*(1+importRows)
	l.Over, l.MaxDelay = 40*time.Second, 500*time.Millisecond
}

func importName(i int) string { return fmt.Sprintf("import%03d", i) }

// The imports differ by the last digit of their number.
const (
	spoiled = 0 // some of their rows end in garbage, and count nothing
	hurried = 5 // their limit is over while their rows are sent
)

// limitOf is how long the parent of an import waits at most. Without a reason it does not come to that.
func limitOf(i int, l load) time.Duration {
	switch i % 10 {
	case spoiled:
		return 2 * importTakes
	case hurried:
		return importTakes / 2
	}
	return importTakes + 4*l.Lease + 6*time.Second
}

// importOf is the name of the import that a payload is of, and its number there; 0: it is of none.
func importOf(payload string) (name string, number int) {
	name, text, _ := strings.Cut(payload, "-")
	if strings.HasPrefix(name, "import") {
		number, _ = strconv.Atoi(text) // what is no number is no row
	}
	return name, number
}

// mannersIn is manners, but that only rows of spoiled imports end in garbage: what is a row's sum, or waits for it,
// is to be handled. Where some messages kill their consumers, all others are slow.
func mannersIn(l load, payload string) manner {
	if kills := isKiller(payload, l.KillsOne); l.KillsOne > 0 {
		return manner{kills: kills, slow: !kills}
	}
	m := manners(payload)
	name, number := importOf(payload)
	if l.Imports > 0 && (number <= parentRow || !strings.HasSuffix(name, strconv.Itoa(spoiled))) {
		m.givesUp, m.failures = false, min(m.failures, retries)
	}
	return m
}

// sendImports sends the share of a producer, one import after the other begun.
func sendImports(ctx context.Context, template relayer) {
	l := template.order.Load
	var all sync.WaitGroup
	for i := template.order.Share; i < l.Imports; i += l.Producers {
		r := template
		r.outbox, r.over, r.batch, r.pause = importName(i), importTakes, 100, 400*time.Millisecond
		r.begun = time.UnixMicro(r.order.Begun).Add((l.Over - importTakes) * time.Duration(i) / time.Duration(l.Imports))
		r.options = func(n int64) []delayqueue.MsgOption {
			if n == parentRow {
				return []delayqueue.MsgOption{delayqueue.WithKey(importName(i)), delayqueue.WithCountdown(l.Rows - 1),
					delayqueue.WithDelay(limitOf(i, l))}
			}
			return []delayqueue.MsgOption{delayqueue.WithCounts(importName(i)), withSomeDelay(l)}
		}
		select {
		case <-time.After(time.Until(r.begun)):
			all.Go(func() { r.sendAll(ctx) })
		case <-ctx.Done():
		}
	}
	all.Wait()
}

// addToSum adds a row that was handled to a sum of its import, which is kept for a time; 0: it is not.
func addToSum(ctx context.Context, msg *delayqueue.Message, keep time.Duration) error {
	name, number := importOf(msg.Payload)
	if number <= parentRow || isSum(msg) {
		return nil
	}
	options := []delayqueue.MsgOption{
		delayqueue.WithKey(sumPrefix+name, delayqueue.Append), delayqueue.WithMaxParts(sumParts),
		delayqueue.WithMaxWait(sumWait),
		delayqueue.WithDelay(sumQuiet),
	}
	if keep > 0 {
		options = append(options, delayqueue.WithRetention(keep))
	}
	return delayqueue.Then(ctx, msg.Payload, options...)
}

// isSum says whether a message is a sum, whose parts are payloads of rows.
func isSum(msg *delayqueue.Message) bool { return strings.HasPrefix(msg.Key, sumPrefix) }

// storyOfSum is what stands in ledgers for the payload of a sum.
func storyOfSum(key, id string) string { return key + " as " + id }

// sumsKept are the results of the sums that Redis keeps, by id; nil if it is to keep none.
func (t *trial) sumsKept() map[string]string {
	if t.load.Imports == 0 || t.load.Keep == 0 {
		return nil
	}
	kept, err := t.admin.HGetAll(t.ctx, key("result")).Result()
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

// wantBothEnds wants most parents to have come when nothing was missing, and some at their limits.
func wantBothEnds(t *trial, v *verdict) {
	complete, short := 0, 0
	for _, e := range t.books.all() {
		if _, number := importOf(e.Payload); e.Kind != started || number != parentRow {
			continue
		}
		if e.Left == 0 {
			complete++
		} else {
			short++
		}
	}
	if complete < t.load.Imports/2 || short < t.load.Imports/20 {
		v.problem("%d parents came when all rows were acked, and %d at their limits", complete, short)
	}
}

// wantForgottenAcks wants a failover to have forgotten acks that had counted.
func wantForgottenAcks(t *trial, v *verdict) {
	wantBothEnds(t, v)
	if !slices.Contains(v.causes, unheard) {
		v.problem("no ack was forgotten")
	}
}
