package check

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// This file looks at what is beside the messages: results, parts, sequences, and what is there only to be shown.

// sequences looks at the numbers of sequences: invariant 12.
func (b *breaches) sequences() {
	for _, name := range sortedKeys(b.Sequences) {
		digits := b.Sequences[name]
		if _, err := strconv.ParseUint(digits, 10, 64); err != nil || len(digits) != 20 {
			b.add(BadSequence, "sequence", name, "sequence %q is at %q, want 20 digits below 2^64", name, digits)
		}
	}
}

// countdowns holds what is left of countdowns against the envelopes: invariant 1. Item is the id of the message.
func (b *breaches) countdowns() {
	some := false
	for _, id := range sortedKeys(b.Counted) {
		env, there := b.Messages[id]
		if there && env.Problem != "" {
			continue
		}
		_, n, ok := decodeCounted(b.Counted[id])
		if env.Countdown == 0 || !ok || n != int64(env.Countdown) {
			b.add(StrayPart, "parts", id+":0",
				"the acks of message %s are %q, want how many have counted, a blank and its countdown, %d", id,
				b.Counted[id], env.Countdown)
		}
	}
	for _, id := range sortedKeys(b.Messages) {
		env := b.Messages[id]
		if env.Problem != "" || env.Countdown == 0 {
			continue
		}
		some = true
		if _, known := b.Counted[id]; !known {
			b.add(LostParts, "parts", id, "message %s has a countdown of %d, and how many acks are missing is not known", id,
				env.Countdown)
		}
	}
	if flag, ok := b.number("parts"); ok && flag == 0 && some {
		b.add(BadState, "state", "parts",
			"field parts is not set, but there are messages with a countdown, of which nobody would know")
	}
}

// parts holds parts against what the envelopes of groups say: invariant 1. Item is the field of a part that is stray,
// the id of a group that lacks any.
func (b *breaches) parts() {
	there, bytes := map[string]int{}, map[string]int{}
	for _, field := range sortedKeys(b.Parts) {
		id, number, _ := strings.Cut(field, ":")
		n, err := decimal(number)
		if env, ok := b.Messages[id]; err != nil || n < 2 || ok && env.Problem == "" && n > int64(env.Group.Count) || !ok {
			b.add(StrayPart, "parts", field, "part %q belongs to no group that counts it", field)
			continue
		}
		there[id]++
		bytes[id] += b.Parts[field]
	}
	groups := 0
	for _, id := range sortedKeys(b.Messages) {
		env := b.Messages[id]
		if env.Problem != "" || env.Group.Count < 2 {
			continue
		}
		groups++
		if there[id] != env.Group.Count-1 || bytes[id] != env.Group.Bytes {
			b.add(LostParts, "parts", id,
				"group %s has %d parts, with %d bytes besides the first, and of these %d are there, with %d", id,
				env.Group.Count, env.Group.Bytes, there[id], bytes[id])
		}
	}
	if flag, ok := b.number("parts"); ok && flag == 0 && groups > 0 {
		b.add(BadState, "state", "parts",
			"field parts is not set, but there are %d groups with parts, which nobody would delete", groups)
	}
}

// maxLeft is how many groups a key lists that left it.
const maxLeft = 100

// left holds the lists of groups that left their keys against the envelopes of what is live: invariant 1. Item is the
// field of a list that names another, and the id of a group that is in none.
func (b *breaches) left() {
	live := map[string][]string{}
	for _, id := range sortedKeys(b.Messages) {
		env := b.Messages[id]
		if env.Problem == "" && env.Key == "" && env.Group.Key != "" && b.live(id) {
			live[env.Group.Key] = append(live[env.Group.Key], id)
		}
	}
	for _, key := range sortedKeys(b.Left) {
		ids := strings.Split(b.Left[key], " ")
		for _, id := range ids {
			if !slices.Contains(live[key], id) {
				b.add(StrayLeft, "parts", ":"+key, "key %q lists %q, which is no live group that has left it", key, id)
				break
			}
		}
		if sorted := slices.Sorted(slices.Values(ids)); len(ids) > maxLeft || len(slices.Compact(sorted)) < len(ids) {
			b.add(StrayLeft, "parts", ":"+key, "key %q lists %d groups, want at most %d, each once", key, len(ids), maxLeft)
		}
	}
	for _, key := range sortedKeys(live) {
		for _, id := range live[key] {
			if len(live[key]) <= maxLeft && !slices.Contains(strings.Split(b.Left[key], " "), id) {
				b.add(NotListed, "msg", id, "group %s has left key %q, which does not list it: no call by key finds it", id, key)
			}
		}
	}
	if flag, ok := b.number("parts"); ok && flag == 0 && len(b.Left) > 0 {
		b.add(BadState, "state", "parts", "field parts is not set, but %d keys have been left by groups", len(b.Left))
	}
}

// journal looks at what was written down of acts: invariant 11.
func (b *breaches) journal() {
	if len(b.Journal) > maxJournal {
		b.add(BadJournal, "journal", "", "it has %d entries, want at most %d", len(b.Journal), maxJournal)
	}
	for _, m := range b.Journal {
		words := strings.SplitN(m.Member, " ", 4)
		switch {
		case m.Problem != "":
			b.add(BadJournal, "journal", m.Member, "entry %.100q has score %s", m.Member, m.Problem)
		case len(words) != 4 || len(words[0]) != 16 || !slices.Contains([]string{"done", "runs", "stop"}, words[1]) ||
			numbers(words[2]) == nil || !json.Valid([]byte(words[3])):
			b.add(BadJournal, "journal", m.Member, "entry %.100q is malformed, want <16 digits> done|runs|stop <us> <JSON>",
				m.Member)
		case len(m.Member) > maxJournalEntry:
			b.add(BadJournal, "journal", m.Member, "entry %.100q has %d bytes, want at most %d", m.Member, len(m.Member),
				maxJournalEntry)
		}
	}
}

// Bounds of the journal: entries, and bytes of each: a task of 64 KB, and 4.2 KB of texts, which JSON may write as
// six times that.
const (
	maxJournal      = 1000
	maxJournalEntry = 96 << 10
)

// lookers looks at what is there only to be shown: invariant 11.
func (b *breaches) lookers() {
	b.journal()
	for _, id := range sortedKeys(b.Consumers) {
		if problem := callProblem(id, b.Consumers[id]); problem != "" {
			b.add(BadConsumer, "consumers", id, "entry %q is malformed: %s", id, problem)
		}
	}
	for _, field := range sortedKeys(b.History) {
		if _, err := decimal(strings.TrimPrefix(field, "d")); err != nil {
			b.add(BadHistory, "history", field, "field %q, want <hours since 1970> or d<days since 1970>", field)
			continue
		}
		numbers := strings.Split(b.History[field], " ")
		bad := len(numbers) != len(counted)
		for _, n := range numbers {
			_, err := decimal(n)
			bad = bad || err != nil
		}
		if bad {
			b.add(BadHistory, "history", field, "field %q is %q, want a number of each of %s", field, b.History[field],
				strings.Join(counted, " "))
		}
	}
}

// results wants each of a message that is done, and the soonest end of those known: invariants 1 and 12.
func (b *breaches) results() {
	for _, id := range sortedKeys(b.Results) {
		if !slices.ContainsFunc(b.held[id], func(h holding) bool { return h.place == "done" }) {
			b.add(StrayResult, "result", id, "the result of %s belongs to no message that is done", id)
		}
		if size := b.Results[id]; size == 0 || size > maxResult {
			b.add(BadState, "result", id, "the result of message %s has %d bytes, want 1 to %d", id, size, maxResult)
		}
	}
	if until, ok := b.number("done"); ok && len(b.Done) > 0 && b.Done[0].Score > 0 &&
		(until == 0 || until > b.Done[0].Score) {
		b.add(BadState, "state", "done", "field done is %d, but done holds %q until %d, which nobody would delete in time",
			until,
			b.Done[0].Tag, b.Done[0].Score)
	}
}
