package ops

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// This file reads calls of scripts as they were on the wire.

// recorded is a call of a script with all its attempts.
type recorded struct {
	name        string
	args        []string
	first, last int64 // unix us
	reply       []string
	tries       int   // attempts
	lost        bool  // an attempt was not answered
	refused     bool  // an attempt was answered with an error, as if there is no queue yet
	at          int64 // unix us, by the server's clock: when it was carried out; 0: not known
}

// lease is the name of the lease of what a fetch hands out.
func (c *recorded) lease() string { return c.args[0] + ":" + c.args[1] }

// scriptOf is the name of the script that is called, if it is of those that histories tell of.
func scriptOf(cmd redis.Cmder) string {
	for _, s := range [...]struct{ name, sha, text string }{{"fetch", script.FetchScript.SHA, script.FetchScript.Text}, {"settle", script.SettleScript.SHA, script.SettleScript.Text},
		{"extend", script.ExtendScript.SHA, script.ExtendScript.Text}, {"keep", script.KeepScript.SHA, script.KeepScript.Text},
		{"set", script.SetScript.SHA, script.SetScript.Text}} {
		if text := cmd.Args()[1]; text == s.sha || text == s.text {
			return s.name
		}
	}
	return ""
}

// replyOf is the reply of a script call as a list: that of an integer is empty for 0.
func replyOf(cmd redis.Cmder) []string {
	if cmd, ok := cmd.(*redis.IntCmd); ok {
		if cmd.Val() == 0 {
			return nil
		}
		return []string{strconv.FormatInt(cmd.Val(), 10)}
	}
	return cmd.(*redis.StringSliceCmd).Val()
}

// fetchReplies reads what fetch answered, as a consumer does. Envelopes that the consumer had to read by itself are empty.
func fetchReplies(t testing.TB) func(c *recorded) script.FetchReply {
	t.Helper()
	var answer []string
	cli := queuetest.ClientWith(t, &redis.Options{})
	t.Cleanup(link.Interpose(cli, queuetest.CommandHook(func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		if args := cmd.Args(); args[0] == "hmget" {
			cmd.(*redis.StringSliceCmd).SetVal(slices.Repeat([]string{"not read"}, len(args)-2))
		} else {
			cmd.(*redis.StringSliceCmd).SetVal(answer)
		}
		return nil
	})))
	s := script.NewStore(cli, "", "")
	return func(c *recorded) script.FetchReply {
		t.Helper()
		answer = c.reply
		apart, err := strconv.Atoi(c.args[15])
		queuetest.Must(t, err)
		got, err := s.Fetch(queuetest.CtxB, &script.Caller{}, script.FetchRequest{Settings: &script.FetchSettings{}, Apart: apart})
		queuetest.Must(t, err)
		return got
	}
}

// An outcome is what one settlement of a settle says.
type outcome struct {
	lease, tag string
	kind       script.OutcomeKind
	delay      int64  // us, of a throttle
	counts     string // the key of the message for whose countdown it counts
	followers  []follower
}

// A follower is a message that an ack sends.
type follower struct {
	word, id, key, payload string
	countdown              int
	answer                 string // what became of it; "": it was stored, or the ack is void
}

// followerOf reads the fields of a send.
func followerOf(word string, fields []string, countdown int) follower {
	envelope := fields[3]
	if fields[0] != "" { // the script writes the beginning
		version, _ := strconv.Atoi(fields[1])
		envelope = fmt.Sprintf("%c%016d", version, 1) + envelope
	}
	e, _ := message.DecodeEnvelope(envelope)
	return follower{word: word, id: fields[2], key: e.Key, payload: e.Payload, countdown: countdown}
}

// answers are those of a settle to its sends, by their numbers from 0, without those that were stored.
func (c *recorded) answers() map[int]string {
	all := map[int]string{}
	if c.reply != nil {
		for _, word := range strings.Fields(c.reply[4]) {
			answer := strings.TrimLeft(word, "0123456789")
			i, _ := strconv.Atoi(strings.TrimSuffix(word, answer))
			all[i-1] = answer
		}
	}
	return all
}

// outcomes are those of a settle, in the order of its reply, without those that the reply leaves to another call.
func (c *recorded) outcomes() (all []outcome) {
	number := func(text string) int {
		n, _ := strconv.Atoi(text)
		return n
	}
	plain, n := number(c.args[2]), number(c.args[4])
	leases, rest := c.args[5:5+n], c.args[5+2*n:]
	for i, acks := range c.args[5+n : 5+2*n] {
		for range number(acks) {
			all = append(all, outcome{lease: leases[i], tag: rest[len(all)]})
		}
	}
	kinds := map[string]script.OutcomeKind{"ack": script.OutcomeAck, "done": script.OutcomeDone, "ready": script.OutcomeReady,
		"garbage": script.OutcomeGarbage, "retry": script.OutcomeRetry, "throttle": script.OutcomeThrottle}
	sizes := map[string]int{"ack": 4, "done": 8, "ready": 7, "garbage": 8, "retry": 8, "throttle": 8, "hold": 1, "group": 1, "overrun": 1,
		"counts": 1, "countdown": 1, "refuse": 4, "keep": 4, "reschedule": 5, "replace": 6, "append": 7}
	countdown, sends, answers := 0, 0, c.answers()
	for rest = rest[plain:]; len(rest) > 0; {
		word, fields := rest[0], rest[1:1+sizes[rest[0]]]
		rest = rest[1+len(fields):]
		kind, ends := kinds[word]
		if !ends { // it follows the outcome before, or is said of the next
			switch {
			case word == "counts":
				all[len(all)-1].counts = fields[0]
			case word == "countdown":
				countdown = number(fields[0])
			case sizes[word] >= 4:
				last, m := &all[len(all)-1], followerOf(word, fields, countdown)
				m.answer = answers[sends]
				last.followers = append(last.followers, m)
				sends, countdown = sends+1, 0
			}
			continue
		}
		o := outcome{lease: leases[number(fields[0])-1], tag: fields[1], kind: kind}
		if kind == script.OutcomeThrottle {
			o.delay = int64(number(fields[7]))
		}
		all = append(all, o)
	}
	if c.reply != nil && c.reply[6] != "0" {
		all = all[:number(strings.TrimSuffix(c.reply[6], "!"))-1]
	}
	return all
}

// void says which outcomes of a settle that was answered changed nothing.
func (c *recorded) void() map[int]bool {
	is := map[int]bool{}
	if c.reply != nil {
		for _, n := range strings.Fields(c.reply[3]) {
			i, _ := strconv.Atoi(n)
			is[i-1] = true
		}
	}
	return is
}

// renewals are the leases that an extend named, and the count of each by the reply; 0: it is over.
func (c *recorded) renewals() (names []string, counts []int) {
	n, _ := strconv.Atoi(c.args[1])
	for i, name := range c.args[2 : 2+n] {
		count, _ := strconv.Atoi(c.reply[1+i])
		names, counts = append(names, name), append(counts, count)
	}
	return names, counts
}

// looks are the messages that an extend looked at, and whether the reply says that each is there.
func (c *recorded) looks() (ids []string, there []bool) {
	n, _ := strconv.Atoi(c.args[1])
	for i, id := range c.args[2+n:] {
		ids, there = append(ids, id), append(there, c.reply[1+n+i] == "1")
	}
	return ids, there
}

// followers are the messages that follow others, stored or not.
func (h *history) followers() (ids []string) {
	for _, c := range h.calls {
		if c.name == "settle" {
			for _, o := range c.outcomes() {
				for _, m := range o.followers {
					ids = append(ids, m.id)
				}
			}
		}
	}
	return ids
}

// tell makes deeds of the calls. One that nobody saw answered may have been carried out until end.
func (h *history) tell(t testing.TB, ids []string, lease, end int64) {
	t.Helper()
	handed := h.handed(t, ids, lease, end)
	for _, c := range h.calls {
		if c.reply == nil {
			c.last = end
		}
		switch {
		case c.name == "settle":
			h.tellSettle(c)
			h.tellCounts(c)
		case c.name == "keep": // its first argument is the lease
			for _, tag := range handed[c.args[0]] {
				if !slices.Contains(c.args[1:], tag) {
					h.tellOf(c, tag, deed{what: map[bool]what{true: wasParted, false: mayHaveParted}[c.reply != nil], lease: c.args[0]})
				}
			}
		case c.name == "extend" && c.reply != nil:
			names, counts := c.renewals()
			for i, name := range names {
				for _, tag := range handed[name] {
					if counts[i] > 0 {
						h.tellOf(c, tag, deed{what: didExtend, lease: name, until: c.first + lease - 1}) // it is rounded down
					} else {
						h.tellOf(c, tag, deed{what: didLose, lease: name, until: c.last})
					}
				}
			}
			looked, there := c.looks()
			for i, id := range looked {
				h.tellOf(c, id, deed{what: map[bool]what{true: wasThere, false: wasGone}[there[i]]})
			}
		}
	}
}

// tellOf adds a deed of a call to the message of a tag.
func (h *history) tellOf(c *recorded, tag string, d deed) {
	id, n := message.SplitTag(tag)
	if d.n == 0 {
		d.n = n
	}
	h.add(id, c.first, c.last, d)
}

// handed makes deeds of the fetches. It returns the tags that they handed out, by their leases.
func (h *history) handed(t testing.TB, ids []string, lease, end int64) map[string][]string {
	t.Helper()
	read, all := fetchReplies(t), map[string][]string{}
	for _, c := range h.calls {
		if c.name != "fetch" {
			continue
		}
		if c.reply == nil {
			c.last = end
		}
		if c.lost && c.args[2] != "0" {
			for _, id := range ids {
				h.tellOf(c, id, deed{what: mayHaveHanded, lease: c.lease(), until: c.last})
			}
		}
		if c.reply == nil {
			continue
		}
		got := read(c)
		all[c.lease()] = got.Tags
		for i, tag := range got.Tags {
			h.tellOf(c, tag, deed{what: didHandOut, lease: c.lease(), at: int64(got.Now), until: int64(got.Now) + lease})
			if missing, waits := got.Missing[i]; waits {
				id, n := message.SplitTag(tag)
				h.addCount(id, c.first, c.last, countDeed{what: didHandOut, n: missing, first: n == 1, at: int64(got.Now)})
			}
		}
		for _, dead := range got.Dead {
			record, _ := message.ParseFail(dead.Fail)
			h.tellOf(c, dead.ID, deed{what: didDie, n: record.Delivery - 1, at: int64(got.Now)})
		}
	}
	return all
}

// tellSettle makes deeds of a settle.
func (h *history) tellSettle(c *recorded) {
	void := c.void()
	for i, o := range c.outcomes() {
		d, follows := deed{what: didSettle, lease: o.lease, kind: o.kind}, didSend
		switch {
		case c.reply == nil:
			d.what, follows = mayHaveSettled, mayHaveSent
		case void[i]:
			d, follows = deed{what: wasVoid, lease: o.lease, until: c.last}, ""
		}
		h.tellOf(c, o.tag, d)
		for _, m := range o.followers {
			if follows != "" && m.answer == "" {
				h.add(m.id, c.first, c.last, deed{what: follows})
			}
		}
	}
}
