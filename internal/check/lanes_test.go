package check

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// inLane is an envelope of a message with a lane, as field 136 has it.
func inLane(due int64, key, lane string) string {
	return fields(due, key, fieldLane, lane, fieldPayload, "x")
}

// turnOf and waitOf are members of lanes.
func turnOf(lane, tag, width string) string { return lane + "\x00\x00" + width + tag }
func waitOf(lane string, due int64, tag, width string) string {
	e := decodeTag(tag)
	return fmt.Sprintf("%s\x00%016d%s %d %s", lane, due, e.ID, e.Delivery, width)
}

// turn gives messages turns of the lane l.
func (b *bed) turn(width string, tags ...string) {
	for _, tag := range tags {
		b.do("ZADD", "lanes", 0, turnOf("l", tag, width))
	}
}

// waitsIn makes the second message of pending wait for a turn of the lane l.
func (b *bed) waitsIn(width string) {
	due := b.now + 61*second
	b.do("HSET", "msg", idPending2, inLane(due, "", width+"l"))
	b.do("ZREM", "pending", idPending2)
	b.do("ZADD", "waiting", due, idPending2)
	b.do("ZADD", "lanes", 0, waitOf("l", due, idPending2, width))
}

// twoInLane makes the first message of pending have a turn of the lane l, and the second wait for it.
func (b *bed) twoInLane() {
	b.do("HSET", "msg", idPending, inLane(b.now+60*second, "order-1", "001l"))
	b.turn("001", idPending)
	b.waitsIn("001")
}

// handledInLane gives the message that is handled, and those that are ready and wait for a retry, a lane, and these
// turns.
func (b *bed) handledInLane(lane string, tags ...string) {
	b.do("HSET", "msg", idUnack, inLane(b.now-8*second, "order-4", lane), idReady, inLane(b.now-9*second, "", lane),
		idRetry, inLane(b.now-7*second, "", lane))
	b.turn(lane[:3], tags...)
}

// long is one byte too long for a lane.
var long = strings.Repeat("x", message.MaxLane+1)

// strayIs says that a member of lanes is stray.
func strayIs(member, why string) string { return fmt.Sprintf("lanes: member %q is %s.", member, why) }

// besides says that a message has another member, too.
func besides(other string) string { return fmt.Sprintf("of a message that has member %q, too", other) }

// lostIn says that a message is not in its lane.
func lostIn(id string) string { return `msg: message ` + id + ` is not in lane "l".` }

// laneBreakages are of lanes and waiting.
var laneBreakages = []breakage{
	// Lanes that are sound.
	{"a lane", func(b *bed) { b.twoInLane() }, says()},
	{"what is handled, ready and waits for a retry", func(b *bed) {
		b.handledInLane("003l", idUnack, "2:"+idReady, idRetry)
	}, says()},
	{"a smaller width waits", func(b *bed) { b.handledInLane("003l", idUnack, idReady, "3:"+idRetry); b.waitsIn("001") },
		says()},
	{"a smaller width has the turn", func(b *bed) {
		b.do("HSET", "msg", idUnack, inLane(b.now-8*second, "order-4", "001l"))
		b.turn("001", idUnack)
		b.waitsIn("100")
	}, says()},
	{"lanes whose names begin alike", func(b *bed) {
		b.twoInLane()
		b.do("HSET", "msg", idRetry, inLane(b.now-7*second, "", "001l\x01"), idReady, inLane(b.now-9*second, "", "001l\xff"))
		b.do("ZADD", "lanes", 0, turnOf("l\x01", idRetry, "001"), 0, turnOf("l\xff", idReady, "001"))
	}, says()},

	// Members that are stray.
	{"members of something else", func(b *bed) {
		for _, member := range []string{"", "l", "l\x00", "m\x00\x00001x", "n\x0012345" + idPending + " 1 001",
			turnOf("", idPending, "001"),
			turnOf(long, idPending, "001"), turnOf("o", idPending, "000"), turnOf("p", idPending, "1"),
			turnOf("q", idPending, "101")} {
			b.do("ZADD", "lanes", 0, member)
		}
	}, func(b *bed) []string {
		const form = "malformed: want a lane, NUL, and NUL, a width and a tag, or 16 digits, an id, a delivery and a width"
		const tag = "malformed: " + malformedTag
		lane := func(bytes, width int) string {
			return fmt.Sprintf("malformed: its lane has %d bytes and the width %d, want 1 to 200 bytes and 1 to 100", bytes,
				width)
		}
		return []string{
			strayIs("", form),
			strayIs(turnOf("", idPending, "001"), lane(0, 1)),
			strayIs("l", form),
			strayIs("l\x00", form),
			strayIs("m\x00\x00001x", tag),
			strayIs("n\x0012345"+idPending+" 1 001", form),
			strayIs(turnOf("o", idPending, "000"), lane(1, 0)),
			strayIs(turnOf("p", idPending, "1"), lane(1, 101)),
			strayIs(turnOf("q", idPending, "101"), lane(1, 101)),
			strayIs(turnOf(long, idPending, "001"), lane(201, 1)),
		}
	}},
	{"a score", func(b *bed) {
		b.handledInLane("003l", idUnack, idReady, idRetry)
		b.do("ZADD", "lanes", "inf", turnOf("l", idRetry, "003"))
	}, says(
		strayIs(turnOf("l", idRetry, "003"), "malformed: its score is inf, want 0"), lostIn(idRetry))},
	{"turns of nobody", func(b *bed) {
		b.twoInLane()
		b.do("HSET", "msg", idGarbage, inLane(b.now-6*second, "order-6", "001l"))
		b.turn("001", "2:"+idNobody, idGarbage)
	}, says(strayIs(turnOf("l", idGarbage, "001"), "of no live message"),
		strayIs(turnOf("l", "2:"+idNobody, "001"), "of no live message"))},
	{"a turn of what is done", func(b *bed) {
		b.done()
		b.do("HSET", "msg", idUnack, inLane(b.now-8*second, "order-4", "001l"))
		b.turn("001", idUnack)
	}, says(strayIs(turnOf("l", idUnack, "001"), "of no live message"))},
	{"a turn of a message without a lane", func(b *bed) { b.turn("001", idRetry) },
		says(strayIs(turnOf("l", idRetry, "001"), `of a message of lane "" with the width 0`))},
	{"turns of another lane and width", func(b *bed) {
		b.handledInLane("003l", idUnack)
		b.do("ZADD", "lanes", 0, turnOf("k", idReady, "003"), 0, turnOf("l", idRetry, "002"))
	}, says(strayIs(turnOf("k", idReady, "003"), `of a message of lane "l" with the width 3`),
		strayIs(turnOf("l", idRetry, "002"), `of a message of lane "l" with the width 3`), lostIn(idReady), lostIn(idRetry))},
	{"two turns of one message", func(b *bed) { b.handledInLane("003l", idUnack, idReady, idRetry, "3:"+idRetry) },
		says(strayIs(turnOf("l", "3:"+idRetry, "003"), besides(turnOf("l", idRetry, "003"))))},
	{"a turn of what waits", func(b *bed) { b.twoInLane(); b.turn("001", idPending2) },
		says(strayIs(turnOf("l", idPending2, "001"), "a turn of a message that waits for one"))},
	{"members of what does not wait", func(b *bed) {
		b.twoInLane()
		b.do("ZADD", "lanes", 0, waitOf("l", b.now+60*second, idPending, "001"), 0,
			waitOf("l", b.now+62*second, idPending2, "001"))
	}, func(b *bed) []string {
		return []string{
			strayIs(waitOf("l", b.now+60*second, idPending, "001"), besides(turnOf("l", idPending, "001"))),
			strayIs(waitOf("l", b.now+62*second, idPending2, "001"), besides(waitOf("l", b.now+61*second, idPending2, "001"))),
		}
	}},
	{"a message that waits until another instant", func(b *bed) {
		b.twoInLane()
		b.do("ZINCRBY", "waiting", -1, idPending2)
	},
		func(b *bed) []string {
			due := b.now + 61*second
			return []string{fmt.Sprintf(`waiting: message %s has score %d, but due %d in its envelope.`, idPending2, due-1, due),
				strayIs(waitOf("l", due, idPending2, "001"), "of a message that does not wait until then"), lostIn(idPending2)}
		}},

	// Messages that are not in their lanes.
	{"no member", func(b *bed) { b.handledInLane("003l", idUnack) }, says(lostIn(idReady), lostIn(idRetry))},
	{"no member of what waits", func(b *bed) {
		b.twoInLane()
		b.do("ZREM", "lanes", waitOf("l", b.now+61*second, idPending2, "001"))
	},
		says(lostIn(idPending2))},
	{"waits without a lane", func(b *bed) {
		b.do("ZREM", "pending", idPending2)
		b.do("ZADD", "waiting", b.now+61*second, idPending2)
	},
		says(`waiting: message ` + idPending2 + ` waits for a turn, and has no lane.`)},
	{"waits without an envelope", func(b *bed) { b.twoInLane(); b.do("HDEL", "msg", idPending2) }, func(b *bed) []string {
		return []string{`waiting: tag "` + idPending2 + `" of message ` + idPending2 + ` has no envelope in msg.`,
			strayIs(waitOf("l", b.now+61*second, idPending2, "001"), "of no live message")}
	}},
	{"an envelope that is broken", func(b *bed) {
		b.twoInLane()
		b.do("HSET", "msg", idPending2, inLane(b.now+61*second, "", "000l"))
	},
		func(b *bed) []string {
			return []string{`msg: the envelope of message ` + idPending2 +
				` is malformed: broken envelope: 28 bytes of version 2.`,
				strayIs(waitOf("l", b.now+61*second, idPending2, "001"), `of a message of lane "" with the width 0`),
				`waiting: message ` + idPending2 + ` waits for a turn, and has no lane.`}
		}},

	// Turns that are too many, free, or in another order.
	{"more turns than the width", func(b *bed) { b.handledInLane("002l", idUnack, idReady, idRetry) },
		says(`lanes: lane "l" has 3 turns, want at most 2.`)},
	{"a free turn", func(b *bed) { b.handledInLane("003l"); b.waitsIn("002"); b.turn("003", idUnack) },
		says(lostIn(idReady), lostIn(idRetry), `lanes: lane "l" has 1 of 2 turns, and message `+idPending2+` waits.`)},
	{"nobody has the turn", func(b *bed) { b.waitsIn("001") },
		says(`lanes: lane "l" has 0 of 1 turns, and message ` + idPending2 + ` waits.`)},
	{"a turn of a later message", func(b *bed) {
		due := b.now + 62*second
		b.twoInLane()
		b.do("HSET", "msg", idPending, inLane(due, "order-1", "001l"))
		b.do("ZADD", "pending", due, idPending)
	}, says(`lanes: lane "l" has a turn of message ` + idPending + `, which comes after message ` + idPending2 +
		`, which waits.`)},
	{"a turn of what is due, of a later message", func(b *bed) {
		b.do("HSET", "msg", idPending, inLane(b.now-2*second, "order-1", "001l"), idPending2,
			inLane(b.now-3*second, "", "001l"))
		b.do("ZADD", "pending", b.now, idPending) // the instant at which it got the turn
		b.turn("001", idPending)
		b.do("ZREM", "pending", idPending2)
		b.do("ZADD", "waiting", b.now-3*second, idPending2)
		b.do("ZADD", "lanes", 0, waitOf("l", b.now-3*second, idPending2, "001"))
	}, says()},
	{"a turn of what is not due yet by its envelope", func(b *bed) {
		b.do("HSET", "msg", idPending, inLane(b.now+60*second+1, "order-1", "001l"))
		b.turn("001", idPending)
	}, func(b *bed) []string {
		return []string{fmt.Sprintf(`pending: message %s has score %d, but due %d in its envelope.`, idPending,
			b.now+60*second, b.now+60*second+1)}
	}},
	{"a turn that has begun, of a later message", func(b *bed) {
		b.waitsIn("001")
		b.do("HSET", "msg", idRetry, inLane(b.now-7*second, "", "001l"))
		b.do("ZADD", "retry", b.now+90*second, "3:"+idRetry)
		b.turn("001", "2:"+idRetry)
	}, says()},
}

// TestDecodeLaneMember: a lane may have any bytes but NUL in its name, also those that stand in a member.
func TestDecodeLaneMember(t *testing.T) {
	const due = 1_700_000_000_000_000
	first, later := decodeTag(idPending), decodeTag("2:"+idPending)
	for member, want := range map[string]LaneMember{
		turnOf("a b\xff 001", idPending, "001"):  {Lane: "a b\xff 001", Tag: first, Width: 1},
		turnOf("l", "2:"+idPending, "100"):       {Lane: "l", Tag: later, Width: 100},
		waitOf("l", due, idPending, "020"):       {Lane: "l", Waits: true, Due: due, Tag: first, Width: 20},
		waitOf("l", 1, "2:"+idPending, "003"):    {Lane: "l", Waits: true, Due: 1, Tag: later, Width: 3},
		waitOf("1:", due, "2:"+idPending, "001"): {Lane: "1:", Waits: true, Due: due, Tag: later, Width: 1},
	} {
		want.Member = member
		if got := decodeLaneMember(member, "0"); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", member, got, want)
		}
	}
}

// TestLanesShown: a dump shows lanes, and what is left of a lane in an empty queue is left over.
func TestLanesShown(t *testing.T) {
	cli := client(t, &redis.Options{Addr: miniredis.RunT(t).Addr()})
	b := build(t, cli, "dq")
	b.twoInLane()
	b.do("ZADD", "lanes", 0, "junk")
	s := b.read()
	for _, want := range []string{"waiting: 1", "lanes: 3", fmt.Sprintf("%q", turnOf("l", idPending, "001")),
		fmt.Sprintf("%q %d [+60.", waitOf("l", b.now+61*second, idPending2, "001"), b.now+61*second),
		`"junk" !! want a lane, `} {
		if dump := s.Dump(); !strings.Contains(dump, want) {
			t.Errorf("no %q in\n%s", want, dump)
		}
	}
	if s.Where(idPending2) != "waiting" {
		t.Errorf("it is in %s", s.Where(idPending2))
	}
	for _, name := range []string{"pending", "ready", "retry", "garbage", "msg", "fail", "key"} {
		b.do("DEL", name)
	}
	r := &recorder{TB: t}
	AssertEmpty(r, cli, b.q.Prefix, b.q.Name, 0)
	for _, want := range []string{`waiting: tag "` + idPending2 + `" is left over`, `lanes: member "junk" is left over`} {
		if got := strings.Join(r.errors, "\n"); !strings.Contains(got, want) || strings.Count(got, "is left over") != 4 {
			t.Errorf("no %q, or more than 4 leftovers, in\n%s", want, got)
		}
	}
}

// TestInspectWhileLanesMove: what seemed wrong because messages got turns, waited and ended while pages were read is
// looked at again, and is not found. What is wrong in a lane of many is found again.
func TestInspectWhileLanesMove(t *testing.T) {
	cli := redistest.Start(t).Client(t)
	b := build(t, cli, "dq")
	b.twoInLane()
	b.do("HSET", "state", "big", 3000)
	const n, due = 300, 120 * second
	id := func(lane, i int) string { return fmt.Sprintf("0190f3a0-0000-7000-8000-%06x%06x", lane+1, i) }
	var found []Finding
	p := &pager{cli: cli, state: newState(b.q)}
	for lane := range 20 {
		name := fmt.Sprint("lane ", lane)
		for i := range n {
			at := b.now + due + int64(i)
			b.do("HSET", "msg", id(lane, i), inLane(at, "", "005"+name))
			if i < 5 {
				b.do("ZADD", "pending", at, id(lane, i))
				b.do("ZADD", "lanes", 0, turnOf(name, id(lane, i), "005"))
				found = append(found, Finding{Kind: LostLane, Structure: "msg", Item: id(lane, i)})
			} else {
				b.do("ZADD", "waiting", at, id(lane, i))
				b.do("ZADD", "lanes", 0, waitOf(name, at, id(lane, i), "005"))
			}
			member := waitOf(name, at, id(lane, i), "005") // where it was when lanes was read
			p.state.Lanes = append(p.state.Lanes, decodeLaneMember(member, "0"))
			p.state.Waiting = append(p.state.Waiting, Entry{Tag: id(lane, i), ID: id(lane, i), Delivery: 1, Score: at})
			found = append(found, Finding{Kind: StrayLane, Structure: "lanes", Item: member},
				Finding{Kind: NoEnvelope, Structure: "waiting", Item: id(lane, i)})
		}
		found = append(found, Finding{Kind: WrongLane, Structure: "lanes", Item: name})
	}
	if sure, err := p.confirm(t.Context(), found); err != nil || len(sure) != 0 {
		t.Errorf("%d are found again, %v: %s", len(sure), err, strings.Join(texts(sure[:min(len(sure), 3)]), "\n"))
	}
	for lane := range 20 { // the last turn ends, and nobody gets it
		b.do("ZREM", "lanes", turnOf(fmt.Sprint("lane ", lane), id(lane, 4), "005"))
		b.do("HDEL", "msg", id(lane, 4))
		b.do("ZREM", "pending", id(lane, 4))
	}
	if sure, err := p.confirm(t.Context(), found); err != nil || len(sure) != 20 || sure[0].Kind != WrongLane {
		t.Errorf("%d are found again, %v: %s", len(sure), err, strings.Join(texts(sure[:min(len(sure), 3)]), "\n"))
	}
	b.do("ZADD", "lanes", 0, turnOf("lane 7", idNobody, "005"))
	if _, sure, err := Inspect(t.Context(), cli, b.q.Prefix, b.q.Name, nil); err != nil || len(sure) != 21 {
		t.Errorf("%d are found, %v: %s", len(sure), err, strings.Join(texts(sure), "\n"))
	}
}
