package delayqueue

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/redis/go-redis/v9"
)

// A scriptCase is one row of a script's table: calls, then the whole state in the words
// of rig.text.
type scriptCase struct {
	do   func(r *rig)
	want string
}

func runScripts(t *testing.T, cases map[string]scriptCase) {
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(r *rig) {
				c.do(r)
				r.expect(c.want)
			})
		})
	}
}

// onBoth runs a test on the embedded server and on a real one. The clock of both is the
// test's, and stands still but for r.at.
func onBoth(t *testing.T, test func(r *rig)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(newRig(t, true))
	})
	t.Run("redis-server", func(t *testing.T) {
		t.Parallel()
		test(newRig(t, false))
	})
}

// A rig is one queue that a test drives call by call. Messages have short names, and
// instants are durations since its base.
type rig struct {
	*store
	t      testing.TB
	name   string
	now    int64          // the server's clock, unix us
	set    func(us int64) // sets it
	with   fetchSettings  // of every fetch
	limits Limits         // of every fetch
	tick   func()         // a fetch of some consumer that hands out nothing
}

const (
	rigBase  = int64(1_717_200_000_000_000) // even; before the real clock
	rigLease = 10 * time.Second
)

func newRig(t testing.TB, embedded bool) *rig {
	r := &rig{t: t, name: strings.ReplaceAll(t.Name(), "/", "_"), with: fetchSettings{lease: rigLease, maxLosses: 3}}
	ctx := context.Background()
	var cli *redis.Client
	if embedded {
		server := miniredis.RunT(t)
		cli = patientClient(server.Addr())
		r.set = func(us int64) { server.SetTime(time.UnixMicro(us)) }
	} else {
		cli = patientClient(shared.Addr())
		clock := "clock of " + r.name
		r.set = func(us int64) {
			sec, frac := us/1e6, us%1e6
			if err := cli.Eval(ctx, "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], ARGV[1], ARGV[2])",
				[]string{clock}, sec, frac).Err(); err != nil {
				t.Fatal(err)
			}
		}
		cli.AddHook(clockOf(clock)) // what tests call themselves
		hookOwn(t, cli, clockOf(clock))
		t.Cleanup(func() { cli.Del(ctx, clock) })
	}
	r.store = newStore(cli, "dq", r.name)
	r.store.attemptTimeout = time.Minute // the embedded server is slow, and a call is made once
	t.Cleanup(func() {
		for _, key := range r.keys.all {
			cli.Del(ctx, key.(string))
		}
		if err := cli.Close(); err != nil {
			t.Errorf("closing the client: %v", err)
		}
	})
	ticker := newCaller()
	r.tick = func() { r.fetch(ticker, 0) }
	r.at(0)
	return r
}

// clockOf makes scripts on a real server read the time from a key: TIME cannot be set.
func clockOf(key string) commandHook {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		args := cmd.Args()
		switch cmd.Name() {
		case "evalsha":
			i := slices.IndexFunc(everyScript, func(s namedScript) bool { return s.sha == args[1] })
			args[0], args[1] = "eval", everyScript[i].text
		case "eval":
		default:
			return next(ctx, cmd)
		}
		args[1] = strings.ReplaceAll(args[1].(string), "redis.call('TIME')", "redis.call('LRANGE', '"+key+"', 0, 1)")
		return next(ctx, cmd)
	}
}

type namedScript struct {
	*script
	name string // of its file
}

var everyScript = []namedScript{
	{sendScript, "send"}, {singleScript, "single"}, {putScript, "put"}, {forgetScript, "forget"},
	{fetchScript, "fetch"}, {settleScript, "settle"},
	{extendScript, "extend"}, {overrunScript, "overrun"}, {interceptScript, "intercept"}, {countsScript, "counts"}, {lookScript, "look"},
	{listScripts[StatePending], "list"}, {steerScript, "steer"}, {pauseScript, "pause"}, {limitScript, "limit"}, {dropScript, "drop"},
	{consumersScript, "consumers"}, {historyScript, "history"}, {forecastScript, "forecast"}, {awaitScript, "await"},
	{sequencesScript, "sequences"}, {dropSequenceScript, "dropsequence"},
	{passSequenceScript, "passsequence"}, {noteScript, "note"}, {journalScript, "journal"},
}

// at sets the server's clock.
func (r *rig) at(d time.Duration) {
	r.now = rigBase + d.Microseconds()
	r.set(r.now)
}

func (r *rig) since(us int64) time.Duration { return time.Duration(us-rigBase) * time.Microsecond }

// tickTo moves the clock on, with a consumer that ticks as it should.
func (r *rig) tickTo(d time.Duration) {
	r.t.Helper()
	for now := r.since(r.now); now < d; {
		now = min(now+r.with.lease/3, d)
		r.at(now)
		r.tick()
	}
}

const idHead = "0190f3a0-0000-7000-8000-"

// idOf a short name, and tagFor a name with its delivery number before it.
func idOf(name string) string { return idHead + fmt.Sprintf("%012x", name) }

func tagFor(name string) string {
	if n, name, ok := strings.Cut(name, ":"); ok {
		return n + ":" + idOf(name)
	}
	return idOf(name)
}

var idPattern = regexp.MustCompile(idHead + "([0-9a-f]{12})")

// names puts short names in place of ids.
func names(text string) string {
	return idPattern.ReplaceAllStringFunc(text, func(id string) string {
		raw, err := hex.DecodeString(id[len(idHead):])
		if err != nil {
			return id
		}
		return strings.TrimLeft(string(raw), "\x00")
	})
}

// msg is a message that is due after d; its payload is its name unless rest says otherwise.
func msg(name string, d time.Duration, rest ...func(*envelope)) *sendMessage {
	return draftOf(name, when{us: d.Microseconds()}, rest)
}

// msgAt is due at an instant.
func msgAt(name string, d time.Duration, rest ...func(*envelope)) *sendMessage {
	return draftOf(name, when{us: rigBase + d.Microseconds(), absolute: true}, rest)
}

func draftOf(name string, w when, rest []func(*envelope)) *sendMessage {
	e := envelope{payload: name, retries: 3}
	for _, f := range rest {
		f(&e)
	}
	return &sendMessage{id: idOf(name), key: e.key, when: w, version: e.version(), text: e.encode(w)}
}

func keyed(key string) func(*envelope) { return func(e *envelope) { e.key = key } }

func sized(n int) func(*envelope) { return func(e *envelope) { e.payload = strings.Repeat("x", n) } }

func (r *rig) do(args ...any) {
	r.t.Helper()
	if err := r.cli.Do(context.Background(), args...).Err(); err != nil {
		r.t.Fatalf("%v: %v", args, err)
	}
}

// equal compares what a call said.
func (r *rig) equal(what string, got, want any) {
	r.t.Helper()
	if !reflect.DeepEqual(got, want) {
		r.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// read is the whole state, with the invariants checked.
func (r *rig) read() *check.State {
	r.t.Helper()
	return check.Assert(r.t, r.cli, "dq", r.name)
}

// text is the whole state in words: `pending a@1s ready 2:b unack c@10s retry 2:d@5s
// garbage e@0s done f@1m0s result f=3 parts g:2=5 fail b=2/0/0@0s!text key k=a sequence s=3 held k@5s wake 1s dropped 1`; a failure
// record is <delivery>/<failures>/<losses>@<when>, and `armed` stands for `wake` where somebody took
// the marker. Callers' calls, grace, lane, big and times of calls have tests of their own.
func (r *rig) text(s *check.State) string {
	var words []string
	list := func(name string, each []string) {
		if len(each) > 0 {
			words = append(append(words, name), each...)
		}
	}
	scored := func(name string, entries []check.Entry) {
		var each []string
		for _, e := range entries {
			each = append(each, names(e.Tag)+"@"+r.since(e.Score).String())
		}
		list(name, each)
	}
	scored("pending", s.Pending)
	var each []string
	for _, e := range s.Ready {
		each = append(each, names(e.Tag))
	}
	list("ready", each)
	scored("unack", s.Unack)
	scored("retry", s.Retry)
	scored("garbage", s.Garbage)
	scored("done", s.Done)
	each = nil
	for _, id := range slices.Sorted(maps.Keys(s.Results)) {
		each = append(each, fmt.Sprintf("%s=%d", names(id), s.Results[id]))
	}
	list("result", each)
	each = nil
	for _, field := range slices.Sorted(maps.Keys(s.Parts)) {
		each = append(each, fmt.Sprintf("%s=%d", names(field), s.Parts[field]))
	}
	list("parts", each)
	each = nil
	for _, key := range slices.Sorted(maps.Keys(s.Left)) {
		each = append(each, key+"="+names(strings.ReplaceAll(s.Left[key], " ", "+")))
	}
	list("left", each)
	each = nil
	for _, id := range slices.Sorted(maps.Keys(s.Fail)) {
		f := s.Fail[id]
		word := fmt.Sprintf("%s=%d/%d/%d@%v", names(id), f.Delivery, f.Failures, f.Losses, r.since(f.When))
		if f.Superseded {
			word = fmt.Sprintf("%s=%d/%d/%d@superseded", names(id), f.Delivery, f.Failures, f.Losses)
		}
		switch f.Error {
		case "":
		case ErrPoison.Error():
			word += "!poison"
		case lostText:
			word += "!lost"
		default:
			word += "!" + strings.ReplaceAll(f.Error, " ", "_")
		}
		each = append(each, word)
	}
	list("fail", each)
	each = nil
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		each = append(each, key+"="+names(s.Keys[key]))
	}
	list("key", each)
	each = nil
	for _, name := range slices.Sorted(maps.Keys(s.Sequences)) {
		n, _ := sequenceNumber(s.Sequences[name])
		each = append(each, fmt.Sprintf("%s=%d", name, n))
	}
	list("sequence", each)
	each = nil
	for _, m := range s.Held {
		each = append(each, m.Member+"@"+r.since(m.Score).String())
	}
	list("held", each)
	if armed := s.Fields["armed"]; s.Wake != 0 {
		list("wake", []string{r.since(s.Wake).String()})
	} else if armed != "" && armed != "0" {
		us, _ := strconv.ParseInt(armed, 10, 64)
		list("armed", []string{r.since(us).String()})
	}
	if n := s.Fields["dropped"]; n != "" {
		list("dropped", []string{n})
	}
	return strings.Join(words, " ")
}

// expect wants this state, in the words of text; an instant may be a range, as in 1s~1.5s.
func (r *rig) expect(want string) {
	r.t.Helper()
	got := r.text(r.read())
	g, w := strings.Fields(got), strings.Fields(want)
	same := len(g) == len(w)
	for i := 0; same && i < len(g); i++ {
		same = sameWord(g[i], w[i])
	}
	if !same {
		r.t.Errorf("state  %s\n  want %s", got, strings.Join(w, " "))
	}
}

func sameWord(got, want string) bool {
	got, gotError, _ := strings.Cut(got, "!")
	want, wantError, _ := strings.Cut(want, "!")
	if gotError != wantError {
		return false
	}
	lo, hi, ranged := strings.Cut(want, "~")
	if !ranged {
		return got == want
	}
	i, j := strings.LastIndex(got, "@")+1, strings.LastIndex(lo, "@")+1
	if got[:i] != lo[:j] {
		return false
	}
	var d [3]time.Duration
	for n, s := range []string{got[i:], lo[j:], hi} {
		var err error
		if d[n], err = time.ParseDuration(s); err != nil {
			return false
		}
	}
	return d[1] <= d[0] && d[0] <= d[2]
}
