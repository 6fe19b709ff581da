package check

import "fmt"

// alarm looks at wake and armed, for whoever sleeps must be woken in time: invariant 9.
func (b *breaches) alarm() {
	for _, m := range b.Markers {
		if m.Member != "w" {
			b.add(StrayAlarm, "wake", m.Member, "member %q, want none but \"w\"", m.Member)
		}
		if m.Problem != "" {
			b.add(StrayAlarm, "wake", m.Member, "member %q has score %s", m.Member, m.Problem)
		}
	}
	armed, ok := b.number("armed")
	if !ok {
		return
	}
	if b.Wake != 0 && b.Wake != armed && b.Wake != b.putOff(armed) {
		b.add(StrayAlarm, "wake", "w", "the marker stands at %d, but armed is %d", b.Wake, armed)
	}

	switch first, what := b.soonest(); {
	case first == 0:
	case armed == 0:
		b.add(LateAlarm, "state", "armed", "armed is not set, but %s, so nobody would be woken", what)
	case armed > first:
		b.add(LateAlarm, "state", "armed", "armed is %d, but %s, so a sleeper would be woken late", armed, what)
	}
}

// soonest is the earliest instant at which there is work, and what that work is; 0 if there is none.
func (b *breaches) soonest() (first int64, what string) {
	earlier := func(us int64, is string) {
		if us > 0 && (first == 0 || us < first) {
			first, what = us, is
		}
	}
	for _, p := range b.places() {
		if p.name == "pending" || p.name == "retry" {
			for _, e := range p.entries {
				earlier(e.Score, fmt.Sprintf("%s holds tag %q for %d", p.name, e.Tag, e.Score))
			}
		}
	}
	if len(b.Ready) > 0 {
		earlier(b.Now, fmt.Sprintf("ready holds tag %q", b.Ready[0].Tag))
	}
	if until, _ := b.number("pause"); until > first && first != 0 {
		first, what = until, what+fmt.Sprintf(" and the queue is paused until %d", until)
	}
	return first, what
}

// putOff is where the marker stands while a limit puts off what is due at armed.
func (b *breaches) putOff(armed int64) int64 {
	n := numbers(b.Fields["limited"])
	if len(n) != 5 || n[1] != armed {
		return armed
	}
	return n[3]
}
