package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// twoHeld makes the message of ready the second of the lease.
func (b *bed) twoHeld(left int) {
	b.do("DEL", "ready")
	b.lease(leaseName, b.now, left, idUnack, "2:"+idReady)
}

// leaseBreakages are of unack and lease.
var leaseBreakages = []breakage{
	// What is held.
	{"two are held", func(b *bed) { b.twoHeld(2) }, says()},
	{"a part is settled", func(b *bed) { b.lease(leaseName, b.now, 2, idNobody, "2:"+idRetry, idUnack, "3:"+idGarbage) },
		says()},
	{"one was canceled", func(b *bed) { b.lease(leaseName, b.now, 2, idNobody, idUnack) }, says()},
	{"nothing is held", func(b *bed) { b.lease("c:8", b.now, 2, idNobody, "2:"+idRetry) }, says()},
	{"the rest of a lease", func(b *bed) { b.endLease(); b.lease(leaseName+"~", b.now, 1, idUnack) }, says()},
	{"no envelope of what was handed out", func(b *bed) { b.do("HDEL", "msg", idUnack); b.do("HDEL", "key", "order-4") },
		says()},
	{"an older delivery is listed", func(b *bed) { b.do("HSET", "fail", idUnack, "2 0 0 1 ") },
		says(`msg: message ` + idUnack + ` is in none of the seven structures.`)},
	{"a later delivery, whose record is lost", func(b *bed) { b.lease(leaseName, b.now, 1, "2:"+idUnack) },
		says(`fail: message ` + idUnack + ` is in unack at delivery 2 and has no record.`)},
	{"a later delivery, by a record that is malformed", func(b *bed) {
		b.lease(leaseName, b.now, 1, "2:"+idUnack)
		b.do("HSET", "fail", idUnack, "2 x")
	}, says(`fail: the record of message ` + idUnack + ` is malformed: broken fail record "2 x".`)},
	{"held by two leases", func(b *bed) { b.lease("c:8", b.now, 1, idUnack) },
		says(`msg: message ` + idUnack + ` is in 2 places, want 1: unack as "` + idUnack + `", unack as "` + idUnack + `".`)},
	{"listed by two leases, held by one", func(b *bed) {
		b.do("HSET", "fail", idUnack, "2 0 0 1 ")
		b.lease("c:8", b.now, 1, "2:"+idUnack)
	}, says()},
	{"listed twice", func(b *bed) { b.lease(leaseName, b.now, 2, idUnack, idUnack) },
		says(`msg: message ` + idUnack + ` is in 2 places, want 1: unack as "` + idUnack + `", unack as "` + idUnack + `".`)},

	// Leases that are not whole.
	{"no list", func(b *bed) { b.do("HDEL", "lease", leaseName) }, says(
		`unack: lease "`+leaseName+`" has no list in lease, so what it handed out is not known.`,
		`msg: message `+idUnack+` is in none of the seven structures.`)},
	{"no count", func(b *bed) {
		b.do("HDEL", "lease", leaseName+"#")
	}, says(`lease: lease "` + leaseName + `" has no count.`)},
	{"a tag in unack", func(b *bed) { b.do("ZADD", "unack", b.now, idUnack) },
		says(`unack: lease "` + idUnack + `" has no list in lease, so what it handed out is not known.`)},
	{"not in unack", func(b *bed) { b.do("ZREM", "unack", leaseName) }, says(
		`lease: field "`+leaseName+`" is of a lease that is not in unack.`,
		`msg: message `+idUnack+` is in none of the seven structures.`)},
	{"a count of nothing", func(b *bed) { b.do("HSET", "lease", "c:8#", "1", "x", "y") }, says(
		`lease: field "c:8#" is of a lease that is not in unack.`,
		`lease: field "x" is of a lease that is not in unack.`)},
	{"a name without a caller", func(b *bed) { b.lease(":8", b.now, 1, idNobody); b.lease("8~", b.now, 1, idNobody) },
		says(
			`lease: the name of lease "8~" is malformed: it names no caller.`,
			`lease: the name of lease ":8" is malformed: it names no caller.`)},
	{"a name without a number", func(b *bed) { b.lease("c:~", b.now, 1, idNobody); b.lease("c:0", b.now, 1, idNobody) },
		says(
			`lease: the name of lease "c:0" is malformed: its call number is 0.`,
			`lease: the name of lease "c:~" is malformed: its call number is empty, want a decimal number.`)},
	{"an end that is none", func(b *bed) { b.do("ZADD", "unack", "inf", leaseName) },
		says(`unack: lease "` + leaseName + `" has score inf, want an integer in (0, 2^53).`)},
	{"malformed tags", func(b *bed) { b.lease(leaseName, b.now, 1, idUnack, "1:"+idNobody, "") }, says(
		`lease: lease "` + leaseName + `" lists tag "1:` + idNobody +
			`", which is malformed: ` + malformedTag + `.`)},
	{"two blanks", func(b *bed) { b.lease(leaseName, b.now, 1, idUnack, "", idNobody) }, says(
		`lease: lease "` + leaseName + `" lists tag "", which is malformed: ` + malformedTag + `.`)},

	// Counts.
	{"a count that is no number", func(b *bed) { b.do("HSET", "lease", leaseName+"#", "01") },
		says(`lease: the count of lease "` + leaseName + `" is "01", want no leading zero.`)},
	{"a count of 0", func(b *bed) { b.do("HSET", "lease", leaseName+"#", "0") },
		says(`lease: the count of lease "` + leaseName + `" is 0, and with its last message a lease ends.`)},
	{"more than is listed", func(b *bed) { b.do("HSET", "lease", leaseName+"#", "2") },
		says(`lease: the count of lease "` + leaseName + `" is 2, but it lists 1 tags.`)},
	{"less than is held", func(b *bed) { b.twoHeld(1) },
		says(`lease: the count of lease "` + leaseName + `" is 1, but 2 of its messages are held.`)},

	// Fields of state.
	{"canceled", func(b *bed) { b.do("HSET", "state", "canceled", "-1", "lent", "5") }, says(
		`state: field canceled is "-1", want digits only.`,
		`state: field "lent" is not in the layout.`)},
}

// What was handed out after the first reading is in its place, and so is all that a probe comes upon.
func TestInspectWhileLeasesChange(t *testing.T) {
	cli := redistest.Start(t).Client(t)
	b := build(t, cli, "dq")
	var found []Finding
	var tags []string
	for i := range 300 {
		id := fmt.Sprintf("0190f3a0-0000-7000-8000-%012x", 0x1000+i)
		key := fmt.Sprint("key ", i%150) // which another probe comes upon
		b.do("HSET", "msg", id, encode(b.now, key, 0, 3, "p"))
		b.do("HSET", "key", key, id)
		tags = append(tags, id)
		found = append(found, Finding{Kind: NoPlace, Structure: "msg", Item: id})
	}
	for part := range slices.Chunk(tags, 30) {
		b.lease("c:"+fmt.Sprint(len(b.read().Leases)), b.now+10*second, 30, part...)
	}
	p := &pager{cli: cli, state: newState(b.q)}
	sure, err := p.confirm(t.Context(), found)
	if err != nil || len(sure) != 0 {
		t.Errorf("%d are lost, as %v, %v", len(sure), sure[:min(len(sure), 1)], err)
	}

	// A lease that begins between the reading of the lists and the look is not seen.
	lists, err := p.lists(t.Context())
	if err != nil || len(lists) != 301 || len(lists[tags[0]]) != 1 {
		t.Fatalf("%d messages are listed, %v", len(lists), err)
	}
	if again, err := p.again(t.Context(), found, nil); err != nil || len(again) != 300 {
		t.Errorf("without the lists %d are lost, %v", len(again), err)
	}
	if again, err := p.again(t.Context(), found, lists); err != nil || len(again) != 0 {
		t.Errorf("with them %d are lost, %v", len(again), err)
	}
	b.do("HDEL", "lease", lists[tags[0]][0])
	if sure, err = p.confirm(t.Context(), found); err != nil || len(sure) != 30 {
		t.Errorf("%d are lost, %v: %s", len(sure), err, strings.Join(texts(sure[:min(len(sure), 3)]), "\n"))
	}
}
