package script

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

var ErrBadReply = errors.New("unexpected reply")

// A reply is what every script returns, a flat list of texts and numbers, read from front to
// back. It remembers the first thing that is not what it should be.
type reply struct {
	rest   []string
	bad    error
	failed error // why there is no reply
}

func (r *reply) fail(format string, args ...any) {
	if r.bad == nil {
		r.bad = fmt.Errorf(format, args...)
	}
}

// err is why there is no reply, or why this is none of that script, once all of it should have been read.
func (r *reply) err(script string) error {
	if r.failed != nil {
		return r.failed
	}
	if len(r.rest) > 0 {
		r.fail("%d values too many", len(r.rest))
	}
	if r.bad == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: %w", ErrBadReply, script, r.bad)
}

// take reads n values.
func (r *reply) take(n int) []string {
	if n < 0 || n > len(r.rest) {
		r.fail("%d values where %d were expected", len(r.rest), n)
		return nil
	}
	head := r.rest[:n:n]
	r.rest = r.rest[n:]
	return head
}

func (r *reply) text() string {
	if one := r.take(1); one != nil {
		return one[0]
	}
	return ""
}

func (r *reply) int64() int64 {
	s := r.text()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		r.fail("%q where a number was expected", s)
	}
	return n
}

func (r *reply) number() int { return int(r.int64()) }

// last takes the last value, which is a number that counts.
func (r *reply) last() int {
	end := reply{rest: r.rest[max(len(r.rest)-1, 0):]}
	r.rest = r.rest[:len(r.rest)-len(end.rest)]
	n := end.number()
	if end.bad != nil || n < 0 {
		r.fail("%d where a number was expected: %v", n, end.bad)
	}
	return n
}

// fourNumbers are words as numbers; 0 for what is missing, no number or negative.
func fourNumbers(words []string) (all [4]int64) {
	for i, word := range words[:min(len(words), len(all))] {
		n, _ := strconv.ParseInt(word, 10, 64)
		all[i] = max(n, 0)
	}
	return all
}

// ordered reads a list of indices, which scripts count from 1, of what order has the caller's indices of.
func (r *reply) ordered(order []int) (list []int) {
	for _, field := range strings.Fields(r.text()) {
		i, err := strconv.Atoi(field)
		if err != nil || i < 1 || i > len(order) {
			r.fail("index %q of %d", field, len(order))
			return nil
		}
		list = append(list, order[i-1])
	}
	slices.Sort(list)
	return list
}

// refused reads which of so many messages were not stored, and who holds the key of each: '<i>=<id> '.
func (r *reply) refused(of int) (holders map[int]string) {
	for _, pair := range strings.Fields(r.text()) {
		text, holder, ok := strings.Cut(pair, "=")
		i, err := strconv.Atoi(text)
		if !ok || err != nil || i < 1 || i > of {
			r.fail("refused %q of %d", pair, of)
			return nil
		}
		if holders == nil {
			holders = make(map[int]string)
		}
		holders[i-1] = holder
	}
	return holders
}
