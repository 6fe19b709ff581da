package delayqueue

import (
	"fmt"
	"strconv"
)

// replyReader takes a script's reply apart and remembers the first thing that is not
// what it should be.
type replyReader struct {
	v   any
	top *replyReader // nil for the reply itself, which keeps bad
	bad error
}

func (r *replyReader) fail(format string, args ...any) {
	if r.top != nil {
		r = r.top
	}
	if r.bad == nil {
		r.bad = fmt.Errorf(format, args...)
	}
}

func (r *replyReader) err(script string) error {
	if r.bad == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: %w", ErrBadReply, script, r.bad)
}

func (r *replyReader) at(i int) *replyReader {
	list, ok := r.v.([]any)
	if !ok || i >= len(list) {
		r.fail("%T where a list of more than %d was expected", r.v, i)
		return &replyReader{top: r}
	}
	return &replyReader{v: list[i], top: r}
}

func (r *replyReader) text() string {
	s, ok := r.v.(string)
	if !ok {
		r.fail("%T where a string was expected", r.v)
	}
	return s
}

func (r *replyReader) texts() []string {
	list, ok := r.v.([]any)
	if !ok {
		r.fail("%T where a list was expected", r.v)
		return nil
	}
	out := make([]string, len(list))
	for i, v := range list {
		s, ok := v.(string)
		if !ok {
			r.fail("%T where a string was expected", v)
		}
		out[i] = s
	}
	return out
}

func (r *replyReader) number() int {
	n, ok := r.v.(int64)
	if !ok {
		r.fail("%T where a number was expected", r.v)
	}
	return int(n)
}

func (r *replyReader) instant() int64 {
	switch v := r.v.(type) {
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err == nil {
			return n
		}
	case float64: // a score, from a server that speaks RESP3
		return int64(v)
	}
	r.fail("%v where an instant was expected", r.v)
	return 0
}
