package outbox

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// TestOutgoing: a message is sent with what is left of its delay and its TTL.
func TestOutgoing(t *testing.T) {
	const age = 10 * time.Second
	created := time.Now().Truncate(time.Microsecond)
	now := created.Add(age)
	delay, ttl := delayqueue.WithDelay, delayqueue.WithMsgTTL
	for name, c := range map[string]struct {
		opts       []delayqueue.MsgOption
		delay, ttl time.Duration
		expired    bool
		ahead      time.Duration // how far the clock was ahead when the row was written
	}{
		"no option":       {},
		"delay":           {opts: []delayqueue.MsgOption{delay(time.Hour)}, delay: time.Hour - age},
		"not written yet": {opts: []delayqueue.MsgOption{delay(time.Hour)}, delay: time.Hour, ahead: 2 * age},
		"deadline of a row not written yet": {
			opts: []delayqueue.MsgOption{delayqueue.WithDeadline(now.Add(time.Second))}, ahead: 2 * age},
		"delay over":              {opts: []delayqueue.MsgOption{delay(time.Second)}},
		"TTL":                     {opts: []delayqueue.MsgOption{ttl(time.Minute)}, ttl: time.Minute - age},
		"TTL over":                {opts: []delayqueue.MsgOption{ttl(age)}, expired: true},
		"TTL behind a delay":      {opts: []delayqueue.MsgOption{delay(age * 3), ttl(age)}, delay: 2 * age, ttl: age},
		"TTL behind a delay over": {opts: []delayqueue.MsgOption{delay(age / 2), ttl(age)}, ttl: age / 2},
		"TTL behind an instant": {opts: []delayqueue.MsgOption{delayqueue.WithSchedule(now.Add(-age)), ttl(time.Minute)},
			ttl: time.Minute - age},
		"TTL over behind an instant": {opts: []delayqueue.MsgOption{delayqueue.WithSchedule(now.Add(-age)), ttl(age)},
			expired: true},
		"countdown over": {opts: []delayqueue.MsgOption{delay(age / 2), delayqueue.WithKey("k"), delayqueue.WithCountdown(3)},
			delay: time.Microsecond},
		"deadline":      {opts: []delayqueue.MsgOption{delayqueue.WithDeadline(now.Add(time.Hour))}},
		"deadline over": {opts: []delayqueue.MsgOption{delayqueue.WithDeadline(now)}, expired: true},
	} {
		row := Row{Payload: "x", Created: created.Add(c.ahead), Options: delayqueue.Describe(c.opts...), number: 7}
		got, err := row.outgoing("s", age-c.ahead)
		if c.expired {
			if !errors.Is(err, delayqueue.ErrExpired) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		d := delayqueue.Describe(got.Options...)
		if err := d.Check(row.Payload); err != nil {
			t.Errorf("%s: a queue would refuse it: %v", name, err)
		}
		if err != nil || d.Err != nil || d.Delay != c.delay || d.TTL != c.ttl || d.Sequence != "s" || d.Number != 7 ||
			!d.Schedule.Equal(row.Options.Schedule) || !d.Deadline.Equal(row.Options.Deadline) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

// TestMarks: rows are kept for the whole time, and what Redis has forgotten is not taken for sent.
func TestMarks(t *testing.T) {
	const minute = int64(time.Minute / time.Microsecond)
	var m marks
	for i := range int64(130) {
		m.add(i*minute, i+1, time.Hour)
	}
	if n := len(m); n != 130 || m.add(129*minute+1, 200, time.Hour) || m.add(140*minute, 130, time.Hour) {
		t.Errorf("%d marks: %v", n, m[len(m)-2:])
	}
	if number, n := m.over(129*minute, time.Hour); number != 70 || n != 70 {
		t.Errorf("rows up to %d are over, %d marks", number, n)
	}
	if again := readMarks(m.text()); !slices.Equal(again, m) {
		t.Error(again)
	}
	if m.forget(50); len(m) != 50 || m[49].Number != 50 {
		t.Error(m)
	}
	ahead := marks{{AtUs: 600 * minute, Number: 50}} // the clock was ten hours ahead
	for i := range int64(130) {
		ahead.add(i*minute, 51+i, time.Hour)
	}
	if number, _ := ahead.over(129*minute, time.Hour); number != 120 {
		t.Errorf("behind a clock that was ahead rows up to %d are over", number)
	}
	for _, text := range []string{"", "rubbish", `{"at":1}`} {
		if got := readMarks(text); len(got) != 0 {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestStatements: what a dialect makes of a statement and of a list of ids.
func TestStatements(t *testing.T) {
	for want, d := range map[string]Dialect{
		"UPDATE a_outbox SET number = id + $1 WHERE id = ANY(CAST($2 AS bigint[]))":      Postgres,
		"UPDATE a_outbox FORCE INDEX (PRIMARY) SET number = id + ? WHERE id IN (-1,2,3)": MySQL,
		"UPDATE a_outbox SET number = id + ? WHERE id IN (-1,2,3)":                       SQLite,
	} {
		query, args := d.WithPrefix("a_").withIDs("UPDATE {prefix}outbox{by} SET number = id + ? WHERE {ids}",
			[]int64{-1, 2, 3}, 5)
		query = d.WithPrefix("a_").fill(query)
		if query != want || args[0] != 5 || len(args) != strings.Count(query, "$")+strings.Count(query, "?") {
			t.Errorf("%s: %s %v, want %s", d.Name(), query, args, want)
		}
	}
}

// TestSchemas: statements end where Schema says they do, and have the prefix.
func TestSchemas(t *testing.T) {
	for _, d := range []Dialect{Postgres, Postgres.WithNotify(), MySQL, SQLite, SQLite.WithNotify()} {
		text := Schema(d.WithPrefix("shop_"))
		for statement := range strings.SplitAfterSeq(strings.TrimSpace(text)+"\n", ";\n") {
			_, statement, _ = strings.Cut(statement, "CREATE ") // behind its comment
			if statement != "" && !strings.Contains(statement, "shop_outbox") || strings.Contains(statement, "{") {
				t.Errorf("%s: %q", d.Name(), statement)
			}
		}
		if notifies := strings.Contains(text, "pg_notify"); notifies != d.notify || notifies && d.Name() != "PostgreSQL" {
			t.Errorf("%s: notifies: %v", d.Name(), notifies)
		}
	}
}
