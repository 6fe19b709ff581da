package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Lease is what one fetch handed out. A message of it is held while its delivery is the current one, so the list may
// be longer than what is held.
type Lease struct {
	End     int64   // unix us; 0 where EndProblem says why, and if it is not in unack
	Tags    []Entry // that it handed out, in that order; Score is 0
	Left    int64   // how many of them its holder has not let go of; 0 where LeftProblem says why
	Held    int     // how many of them are held
	InUnack bool    // it has a member in unack
	Listed  bool    // it has a list in lease
	Counted bool    // it has a count in lease

	EndProblem, LeftProblem string
}

const (
	countMark = "#" // ends the fields of lease that are counts
	restMark  = "~" // ends the names of leases of which a part was taken back
)

// setMember adds a member of unack.
func (s *State) setMember(member, score string) {
	us, problem := decodeScore(score)
	l := s.Leases[member]
	l.InUnack, l.End, l.EndProblem = true, us, problem
	s.Leases[member] = l
}

// setLease adds a field of lease.
func (s *State) setLease(field, value string) {
	name, count := strings.CutSuffix(field, countMark)
	l := s.Leases[name]
	if count {
		l.Counted = true
		if left, err := decimal(value); err != nil {
			l.LeftProblem = err.Error()
		} else {
			l.Left = left
		}
	} else {
		l.Listed, l.Tags = true, nil
		for _, tag := range strings.Split(value, " ") {
			l.Tags = append(l.Tags, decodeTag(tag))
		}
	}
	s.Leases[name] = l
}

// hold fills Unack with what the leases hold, once all else was read.
func (s *State) hold() {
	for _, name := range s.leaseNames() {
		l := s.Leases[name]
		held := 0
		for _, e := range l.Tags {
			if l.InUnack && s.holds(e) {
				e.Lease, e.Score, e.ScoreProblem = name, l.End, l.EndProblem
				s.Unack = append(s.Unack, e)
				held++
			}
		}
		l.Held = max(l.Held, held)
		s.Leases[name] = l
	}
	slices.SortStableFunc(s.Unack, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Lease, b.Lease)) // tags of one lease stay as they are
	})
}

// holds says whether a tag that is listed is the current delivery of its message.
func (s *State) holds(e Entry) bool {
	_, ok := s.Messages[e.ID]
	return ok && e.TagProblem == "" && e.Delivery >= max(s.Fail[e.ID].Delivery, 1)
}

// leaseNames are the names of all leases in the order of their ends.
func (s *State) leaseNames() []string {
	return slices.SortedFunc(slices.Values(sortedKeys(s.Leases)), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Leases[a].End, s.Leases[b].End), cmp.Compare(a, b))
	})
}

// leases looks at each lease: invariants 1 and 3. Item is a member of unack or a field of lease.
func (b *breaches) leases() {
	for _, name := range sortedKeys(b.Leases) {
		l := b.Leases[name]
		field := name
		if !l.Listed {
			field += countMark
		}
		problem := nameProblem(name)
		switch {
		case !l.InUnack:
			b.add(StrayLease, "lease", field, "field %q is of a lease that is not in unack", field)
			continue
		case !l.Listed:
			b.add(LostLease, "unack", name, "lease %q has no list in lease, so what it handed out is not known", name)
		case !l.Counted:
			b.add(LostLease, "lease", name+countMark, "lease %q has no count", name)
		case problem != "":
			b.add(StrayLease, "lease", field, "the name of lease %q is malformed: %s", name, problem)
		}
		if l.EndProblem != "" {
			b.add(BadScore, "unack", name, "lease %q has score %s", name, l.EndProblem)
		}
		for _, e := range l.Tags {
			if e.TagProblem != "" {
				b.add(BadTag, "lease", name, "lease %q lists tag %q, which is malformed: %s", name, e.Tag, e.TagProblem)
				break
			}
		}
		if problem := l.countProblem(); problem != "" {
			b.add(WrongCount, "lease", name+countMark, "the count of lease %q is %s", name, problem)
		}
	}
}

// countProblem says what is wrong with how many its holder has not let go of.
func (l Lease) countProblem() string {
	switch {
	case !l.Counted || !l.Listed:
		return ""
	case l.LeftProblem != "":
		return l.LeftProblem
	case l.Left == 0:
		return "0, and with its last message a lease ends"
	case l.Left > int64(len(l.Tags)):
		return fmt.Sprintf("%d, but it lists %d tags", l.Left, len(l.Tags))
	case l.Left < int64(l.Held):
		return fmt.Sprintf("%d, but %d of its messages are held", l.Left, l.Held)
	}
	return ""
}

// nameProblem wants `<caller>:<call number>`, and the mark of a rest behind it or not.
func nameProblem(name string) string {
	name = strings.TrimRight(name, restMark)
	i := strings.LastIndexByte(name, ':')
	if i < 1 {
		return "it names no caller"
	}
	switch n, err := decimal(name[i+1:]); {
	case err != nil:
		return "its call number is " + err.Error()
	case n == 0:
		return "its call number is 0"
	}
	return ""
}
