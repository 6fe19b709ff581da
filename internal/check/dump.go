package check

import (
	"fmt"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"
)

// payloadShown is how many bytes of a payload or an error text Dump shows.
const payloadShown = 40

// Dump is the whole state as text in columns, for a person to read. Instants
// are in unix us, with the distance from the reading in brackets.
func (s *State) Dump() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

	line("queue %s:%s at %d", s.Queue.Prefix, s.Queue.Name, s.Now)
	for _, p := range s.places() {
		line("%s: %d", p.name, len(p.entries))
		for _, e := range p.entries {
			score := s.instant(e.Score)
			if p.name == "ready" {
				score = ""
			}
			line("  %s\t%s\t%s", text(e.Tag), score, joined(e.TagProblem, e.ScoreProblem))
		}
	}
	line("msg: %d", len(s.Messages))
	for _, id := range sortedKeys(s.Messages) {
		m := s.Messages[id]
		line("  %s\tv%d\tdue %s\tkey %q\tflags %d\tretries %d\tttl %v\tdeadline %s\ttimeout %v\tkept %v\theaders %q\t%d bytes\t%s\t%s",
			text(id), m.Version, s.instant(m.Due), m.Key, m.Flags, m.Retries,
			time.Duration(m.TTL)*time.Microsecond, s.instant(m.Deadline), time.Duration(m.Timeout)*time.Microsecond,
			time.Duration(m.Retention)*time.Microsecond, m.Headers, m.Size, cut(m.Payload), m.Problem)
	}
	line("fail: %d", len(s.Fail))
	for _, id := range sortedKeys(s.Fail) {
		f := s.Fail[id]
		line("  %s\tdelivery %d\tfailures %d\tlosses %d\twhen %s\t%s\t%s",
			text(id), f.Delivery, f.Failures, f.Losses, s.instant(f.When), cut(f.Error), f.Problem)
	}
	line("key: %d", len(s.Keys))
	for _, key := range sortedKeys(s.Keys) {
		line("  %q\t%s", key, text(s.Keys[key]))
	}
	line("result: %v\nparts: %v\nleft: %v\nheld: %v", s.Results, s.Parts, s.Left, s.Held)
	line("wake: %d", len(s.Markers))
	for _, m := range s.Markers {
		line("  %s\t%s\t%s", text(m.Member), s.instant(m.Score), m.Problem)
	}
	line("state: %d", len(s.Fields))
	for _, field := range sortedKeys(s.Fields) {
		line("  %s\t%s", text(field), cut(s.Fields[field]))
	}
	for _, name := range sortedKeys(s.Sequences) {
		line("sequence %q at %s", name, cut(s.Sequences[name]))
	}
	for _, st := range structures {
		if kind, ok := s.WrongType[st.name]; ok {
			line("%s is a %s, want a %s", st.name, kind, st.kind)
		}
		if ms, ok := s.TTLs[st.name]; ok {
			line("%s expires in %v", st.name, time.Duration(ms)*time.Millisecond)
		}
	}
	for _, key := range s.Strays {
		line("stray key %q", key)
	}
	w.Flush() // into a strings.Builder, which does not fail
	return trailingBlanks.ReplaceAllString(out.String(), "")
}

// trailingBlanks removes the padding of last columns that are empty.
var trailingBlanks = regexp.MustCompile(`(?m) +$`)

// instant is unix us and how far from the reading it is.
func (s *State) instant(us int64) string {
	if us == 0 {
		return "0"
	}
	// Beyond 292 years a Duration would wrap; nothing well formed is so far off.
	return fmt.Sprintf("%d [%+.6fs]", us, float64(us-s.Now)/1e6)
}

// text shows a name as it is, and quoted where it would break the columns.
func text(name string) string {
	if q := fmt.Sprintf("%q", name); q != `"`+name+`"` || name == "" {
		return q
	}
	return name
}

// cut quotes the first bytes of a long text.
func cut(long string) string {
	if len(long) <= payloadShown {
		return fmt.Sprintf("%q", long)
	}
	return fmt.Sprintf("%q...", long[:payloadShown])
}

func joined(problems ...string) string {
	var all []string
	for _, p := range problems {
		if p != "" {
			all = append(all, "!! "+p)
		}
	}
	return strings.Join(all, " ")
}
