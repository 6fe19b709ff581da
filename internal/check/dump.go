package check

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// shown is how many bytes of a field Dump shows.
const shown = 500

// Dump is the whole state as text, for a person to read. Instants are in unix us; those of tags and markers have
// their distance from the reading in brackets.
func (s *State) Dump() string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("queue %s:%s at %d", s.Queue.Prefix, s.Queue.Name, s.Now)
	for _, p := range s.places() {
		line("%s: %d", p.name, len(p.entries))
		for _, e := range p.entries {
			line("  %q%s", e.Tag, s.scored(e.Score, e.TagProblem, e.ScoreProblem))
		}
	}
	line("leases: %d", len(s.Leases))
	for _, name := range s.leaseNames() {
		l := s.Leases[name]
		line("  %q%s: %d tags, %d left, %d held", name, s.scored(l.End, l.EndProblem, l.LeftProblem), len(l.Tags), l.Left,
			l.Held)
	}
	line("lanes: %d", len(s.Lanes))
	for _, m := range s.Lanes {
		line("  %q%s", m.Member, s.scored(m.Due, m.Problem))
	}
	line("wake: %d, holds: %d", len(s.Markers), len(s.Holds))
	for _, m := range slices.Concat(s.Markers, s.Holds) {
		line("  %q%s", m.Member, s.scored(m.Score, m.Problem))
	}
	dumpFields(&out, "msg", s.Messages)
	dumpFields(&out, "fail", s.Fail)
	dumpFields(&out, "key", s.Keys)
	dumpFields(&out, "result", s.Results)
	dumpFields(&out, "parts", s.Parts)
	dumpFields(&out, "left", s.Left)
	dumpFields(&out, "counted", s.Counted)
	dumpFields(&out, "state", s.Fields)
	dumpFields(&out, "sequence", s.Sequences)
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
	return out.String()
}

// dumpFields writes a line for each field of a hash.
func dumpFields[V any](out *strings.Builder, structure string, fields map[string]V) {
	fmt.Fprintf(out, "%s: %d\n", structure, len(fields))
	for _, field := range sortedKeys(fields) {
		text := fmt.Sprintf("%q", fmt.Sprintf("%+v", fields[field]))
		if len(text) > shown {
			text = text[:shown] + "..."
		}
		fmt.Fprintf(out, "  %q %s\n", field, text)
	}
}

// scored is a score with how far from the reading it is, and what is wrong with it.
func (s *State) scored(us int64, problems ...string) (text string) {
	if us != 0 {
		// Beyond 292 years a Duration would wrap; nothing well formed is so far off.
		text = fmt.Sprintf(" %d [%+.6fs]", us, float64(us-s.Now)/1e6)
	}
	for _, problem := range problems {
		if problem != "" {
			text += " !! " + problem
		}
	}
	return text
}
