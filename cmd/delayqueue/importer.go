package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// How a message is moved once, whoever is killed when, and however many imports run at a time:
//
//  1. A claim takes it out of their structure and gives it the next number, in one step (import.lua). From then on
//     none of their consumers can get it, and it stands in the claims until the last step.
//  2. The claims with the lowest numbers are sent, each as that number of a sequence (WithSequence), so that it is
//     stored once, however often it is sent. No number is sent before all lower ones are stored, for claims are sent
//     from the lowest on, and leave only when they were stored.
//  3. What was stored is deleted of theirs.
//
// Whoever comes next begins with the claims that are there.

//go:embed import.lua
var importLua string

var importScript = redis.NewScript(importLua)

// importStep is how many messages one call moves.
const importStep = 200

// A structure is one of their queue in which messages wait.
type structure struct {
	name, key string
	list      bool
	leases    string  // of a list: the key of the ends of leases; "": they have none
	latest    float64 // only what has a score up to this, or a lease that ended before; 0: all
}

// A foreignMessage is one of theirs.
type foreignMessage struct {
	gone    bool   // only its id is there
	problem string // why it cannot be sent
	payload string
	key     string                 // "": none
	options []delayqueue.MsgOption // but when it is due
}

// A foreignQueue is a queue of another library.
type foreignQueue interface {
	// base is what its keys begin with. Keys that begin with it are in one slot.
	base() string
	structures(now time.Time) []structure
	// load reads messages; due is when each is, and 0 for now.
	load(ctx context.Context, now time.Time, claims []claim) ([]foreignMessage, error)
	// settle deletes what was sent, and the claims on it.
	settle(ctx context.Context, claims string, sent []claim) error
	// left counts what is not for an import, by why.
	left(ctx context.Context) (map[string]int64, error)
}

// A claim is a message on its way: from a structure, where it had a score.
type claim struct {
	member, from, id string
	due              float64 // unix seconds; 0: now
	number           int64
}

// latestDue is the first instant, in unix seconds, at which nothing may be due.
var latestDue = float64(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).Unix())

// when is its option.
func (c *claim) when() delayqueue.MsgOption {
	return delayqueue.WithSchedule(time.UnixMicro(max(1, int64(c.due*1e6))))
}

// An importer moves messages into queue `into`.
type importer struct {
	cli     redis.UniversalClient
	theirs  foreignQueue
	from    string // the library
	into    *delayqueue.Publisher
	target  string // prefix:name of the queue
	sharded bool   // the queue has several shards
	whole   int64  // number to which the sequence has come that is for a queue with one shard
	floor   int64  // number to which the sequence had come at the start, and after the last outage
	moved   func(n int)
	outage  func(err error, first bool) bool // whether to wait for the end of what err shows; first: of this outage

	monitor *ops.Queue // of the queue
	importResult
}

// importResult is what an import has done.
type importResult struct {
	Moved    int64            `json:"moved"`
	There    int64            `json:"there,omitempty"`    // a message that has its key was there
	Repeated int64            `json:"repeated,omitempty"` // stored by a run that was cut off, or by one beside this
	Gone     int64            `json:"gone,omitempty"`     // deleted by somebody while they were on their way
	Left     map[string]int64 `json:"left,omitempty"`
}

func (im *importer) numbers() string  { return im.theirs.base() + "delayqueue" }
func (im *importer) claims() string   { return im.numbers() + ":" + im.target }
func (im *importer) sequence() string { return "import " + im.from + " " + im.theirs.base() }

// sent is a sequence without messages, for a queue with several shards: no number above it was sent.
func (im *importer) sent() string { return im.sequence() + " sent" }

// spread is how many sequences the messages without a key have in a queue with several shards, so that they go to all
// of them.
const spread = 64

// sequenceOf is the sequence of a message. In a queue with several shards it lies with the key of the message. A
// message keeps its sequence however often it is sent, so the sequence does not depend on the number of shards.
func (im *importer) sequenceOf(c *claim, m *foreignMessage) string {
	switch {
	case !im.sharded:
		return im.sequence()
	case m.key != "":
		return "import {" + script.HashTag(m.key) + "} " + im.from + " " + im.theirs.base()
	default:
		return fmt.Sprintf("import {%d} %s %s", c.number%spread, im.from, im.theirs.base())
	}
}

// load reads messages. It refuses a key with which no sequence can lie in one shard.
func (im *importer) load(ctx context.Context, claims []claim) ([]foreignMessage, error) {
	found, err := im.theirs.load(ctx, time.Now(), claims)
	for i, m := range found {
		if im.sharded && m.key != "" && strings.Contains(script.HashTag(m.key), "}") {
			found[i].problem = leftBrace
		}
	}
	return found, err
}

// last is how far a sequence has come.
func (im *importer) last(ctx context.Context, sequence string) (int64, error) {
	last, err := im.monitor.Sequence(ctx, sequence)
	if errors.Is(err, delayqueue.ErrNotFound) {
		err = nil
	}
	return last, err
}

// begin finds out how far the sequence has come, and refuses to go on where an import into another queue was cut off.
func (im *importer) begin(ctx context.Context) error {
	last, err := im.last(ctx, im.sequence())
	if im.floor = last; err == nil && im.sharded {
		im.whole = last
		last, err = im.last(ctx, im.sent())
		im.floor = max(im.floor, last)
	}
	if err != nil {
		return err
	}
	others, err := im.cli.HKeys(ctx, im.numbers()).Result()
	if err != nil {
		return err
	}
	for _, other := range others {
		if n, err := im.cli.ZCard(ctx, im.numbers()+":"+other).Result(); err != nil || n > 0 && other != im.target {
			prefix, name, _ := strings.Cut(other, ":")
			return errors.Join(err,
				fail(exitRefused, "an import into queue %q (prefix %q) has %s on the way: end it first, with --into %s "+
					"--prefix %s",
					name, prefix, plural(int(n), "message"), shellQuote(name), shellQuote(prefix)))
		}
	}
	return nil
}

// size is how many messages wait to be moved; some of them may have to be left.
func (im *importer) size(ctx context.Context) (total int64, err error) {
	add := func(n int64, e error) { total, err = total+n, errors.Join(err, e) }
	add(im.cli.ZCard(ctx, im.claims()).Result())
	for _, s := range im.theirs.structures(time.Now()) {
		switch {
		case s.leases != "": // those that run are not for us
		case s.list:
			add(im.cli.LLen(ctx, s.key).Result())
		case s.latest != 0:
			add(im.cli.ZCount(ctx, s.key, "-inf", seconds(s.latest)).Result())
		default:
			add(im.cli.ZCard(ctx, s.key).Result())
		}
	}
	return total, err
}

// outlast does work that an outage of Redis may end, and goes on with it after that. What is done twice is done once,
// by the numbers of claims; a server that forgot some of them does not get them again, for it begins anew. If nothing
// was moved between two errors, they are one outage.
func (im *importer) outlast(ctx context.Context, work func(context.Context) error) error {
	err := work(ctx)
	for moved := int64(-1); err != nil && ctx.Err() == nil && im.outage(err, im.Moved != moved); {
		moved = im.Moved
		rest(ctx, followInterval)
		if err = im.begin(ctx); err == nil {
			err = work(ctx)
		}
	}
	return err
}

// run moves what waits, again and again until it finds nothing more.
func (im *importer) run(ctx context.Context) error {
	for more := true; more; {
		if err := im.forward(ctx); err != nil {
			return err
		}
		more = false
		if err := im.sweep(ctx, func(s structure, claims []claim) (int, error) {
			n, err := im.claim(ctx, s, claims)
			more = more || n > 0
			return n, errors.Join(err, im.forward(ctx))
		}); err != nil {
			return err
		}
	}
	return im.count(ctx)
}

// dryRun counts what would be moved.
func (im *importer) dryRun(ctx context.Context) (err error) {
	if im.Moved, err = im.cli.ZCard(ctx, im.claims()).Result(); err != nil {
		return err
	}
	if err := im.sweep(ctx, func(_ structure, claims []claim) (int, error) {
		im.Moved += int64(len(claims))
		im.moved(len(claims))
		return 0, nil
	}); err != nil {
		return err
	}
	return im.count(ctx)
}

// count adds to Left what is not for an import.
func (im *importer) count(ctx context.Context) error {
	left, err := im.theirs.left(ctx)
	for why, n := range left {
		if n != 0 {
			im.Left[why] += n
		}
	}
	return err
}

// sweep passes once through all structures, and begins Left anew.
func (im *importer) sweep(ctx context.Context, take func(structure, []claim) (int, error)) error {
	im.Left = map[string]int64{}
	for _, s := range im.theirs.structures(time.Now()) {
		if err := im.pass(ctx, s, take); err != nil {
			return err
		}
	}
	return nil
}

// seconds is a score as Redis takes it.
func seconds(score float64) string { return strconv.FormatFloat(score, 'f', -1, 64) }

// pass goes through a structure, a page at a time, and gives take what can be sent; it says how many of them it took
// out. What cannot be sent is passed over, and counted by why.
func (im *importer) pass(ctx context.Context, s structure, take func(structure, []claim) (int, error)) error {
	for offset := int64(0); ; {
		page, err := im.page(ctx, s, offset)
		if err != nil || len(page) == 0 {
			return err
		}
		found, err := im.load(ctx, page)
		if err != nil {
			return err
		}
		running, err := im.running(ctx, s, page)
		if err != nil {
			return err
		}
		var good []claim
		for i := range page {
			switch {
			case running[page[i].id]: // counted by left
			case found[i].gone:
				im.Left[leftGone]++
			case page[i].due < 0 || page[i].due >= latestDue || page[i].due != page[i].due:
				im.Left[leftUnreadable]++
			case found[i].problem != "":
				im.Left[found[i].problem]++
			default:
				good = append(good, page[i])
			}
		}
		taken := 0
		if len(good) > 0 {
			if taken, err = take(s, good); err != nil {
				return err
			}
		}
		offset += int64(len(page) - taken)
	}
}

// Why messages are left where they are.
const (
	leftGone       = "ids without a message"
	leftUnreadable = "unreadable"
	leftGroups     = "in a group"
	leftBrace      = "ids with a }, for which a queue with several shards has no place"
)

// page reads what stands behind offset, the oldest first.
func (im *importer) page(ctx context.Context, s structure, offset int64) (page []claim, err error) {
	if !s.list {
		opt := &redis.ZRangeBy{Min: "-inf", Max: "+inf", Offset: offset, Count: importStep}
		if s.latest != 0 {
			opt.Max = seconds(s.latest)
		}
		found, err := im.cli.ZRangeByScoreWithScores(ctx, s.key, opt).Result()
		for _, z := range found {
			page = append(page, claim{from: s.name, id: z.Member.(string), due: z.Score})
		}
		return page, err
	}
	ids, err := im.cli.LRange(ctx, s.key, -offset-importStep, -offset-1).Result()
	for i := len(ids) - 1; i >= 0; i-- { // the oldest stand at the end
		page = append(page, claim{from: s.name, id: ids[i]})
	}
	return page, err
}

// running are the ids of a list with leases of which somebody has one, or which have none.
func (im *importer) running(ctx context.Context, s structure, page []claim) (map[string]bool, error) {
	if s.leases == "" {
		return nil, nil
	}
	ended, err := im.cli.ZRangeByScore(ctx, s.leases, &redis.ZRangeBy{Min: "-inf", Max: seconds(s.latest)}).Result()
	running := map[string]bool{}
	for _, c := range page {
		running[c.id] = !slices.Contains(ended, c.id)
	}
	return running, err
}

func (im *importer) claim(ctx context.Context, s structure, claims []claim) (int, error) {
	kind, leases, latest := "set", s.leases, ""
	if s.list {
		kind = "list"
	}
	if leases == "" {
		leases = s.key
	}
	if s.latest != 0 {
		latest = seconds(s.latest)
	}
	args := []any{im.target, im.floor, kind, latest, s.name}
	for _, c := range claims {
		args = append(args, c.id)
	}
	return importScript.Run(ctx, im.cli, []string{im.numbers(), im.claims(), s.key, leases}, args...).Int()
}

// forward sends what is claimed, from the lowest number on, until there is nothing.
func (im *importer) forward(ctx context.Context) error {
	for {
		found, err := im.cli.ZRangeWithScores(ctx, im.claims(), 0, importStep-1).Result()
		if err != nil || len(found) == 0 {
			return err
		}
		claims := make([]claim, len(found))
		for i, z := range found {
			c := claim{member: z.Member.(string), number: int64(z.Score)}
			var score string
			c.from, score, _ = strings.Cut(c.member, ":")
			score, c.id, _ = strings.Cut(score, ":")
			if c.due, err = strconv.ParseFloat(score, 64); err != nil {
				return fmt.Errorf("%s: %q is no claim of an import: %w", im.claims(), c.member, err)
			}
			claims[i] = c
		}
		if err := im.send(ctx, claims); err != nil {
			return err
		}
	}
}

// send sends claims, and settles those of which it knows that they are stored.
func (im *importer) send(ctx context.Context, claims []claim) error {
	found, err := im.load(ctx, claims)
	if err != nil {
		return err
	}
	var batch []delayqueue.Outgoing
	var sent, settled []claim
	for i, m := range found {
		if m.gone || m.problem != "" { // since it was claimed; what is left of it stays
			taken, err := im.cli.ZRem(ctx, im.claims(), claims[i].member).Result()
			if err != nil {
				return err
			}
			if taken == 0 { // another import has settled it since: that takes the claim first
				im.Repeated++
			} else {
				im.Gone++
			}
			continue
		}
		if claims[i].number <= im.whole { // stored when the queue had one shard
			im.Repeated++
			settled = append(settled, claims[i])
			continue
		}
		sent = append(sent, claims[i])
		batch = append(batch, delayqueue.Outgoing{Payload: m.payload,
			Options: append(m.options, claims[i].when(),
				delayqueue.WithSequence(im.sequenceOf(&claims[i], &m), claims[i].number))})
	}
	tries, cancel := context.WithTimeout(ctx, stuck)
	defer cancel()
	if im.sharded && len(sent) > 0 {
		if _, err := im.monitor.PassSequence(tries, im.sent(), sent[len(sent)-1].number); err != nil &&
			!errors.Is(err, delayqueue.ErrNotFound) {
			return err
		}
	}
	var results []delayqueue.SendResult
	if len(batch) > 0 {
		results, _ = im.into.SendBatch(tries, batch) // the results have the errors
	}
	var failed error
	for i, r := range results {
		switch {
		case errors.Is(r.Err, delayqueue.ErrSequence):
			im.Repeated++
		case r.Err != nil:
			if failed == nil {
				failed = fmt.Errorf("message %s: %w", sent[i].id, r.Err)
			}
			continue
		case r.Info.Existed:
			im.There++
		default:
			im.Moved++
		}
		settled = append(settled, sent[i])
	}
	if len(settled) > 0 {
		failed = errors.Join(failed, im.theirs.settle(ctx, im.claims(), settled))
	}
	im.moved(len(settled))
	return failed
}
