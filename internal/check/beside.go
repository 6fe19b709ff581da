package check

import (
	"strconv"
	"strings"
)

// This file looks at what is beside the messages: sequences, and what is there for Monitors alone.

// sequences looks at the numbers of sequences: invariant 12.
func (b *breaches) sequences() {
	for _, name := range sortedKeys(b.Sequences) {
		digits := b.Sequences[name]
		if _, err := strconv.ParseUint(digits, 10, 64); err != nil || len(digits) != 20 {
			b.add(BadSequence, "sequence", name, "sequence %q is at %q, want 20 digits below 2^64", name, digits)
		}
	}
}

// lookers looks at what is there for Monitors alone: invariant 11.
func (b *breaches) lookers() {
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
			b.add(BadHistory, "history", field, "field %q is %q, want a number of each of %s", field, b.History[field], strings.Join(counted, " "))
		}
	}
}
