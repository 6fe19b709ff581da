package script

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { os.Exit(queuetest.RunTests(m, ScriptTexts...)) }

// A scriptCase is one row of a script's table: calls, then the whole state in the words
// of rig.text.
type scriptCase struct {
	do   func(r *rig)
	want string
}

func runScripts(t *testing.T, cases map[string]scriptCase) {
	t.Parallel()
	for name, c := range cases {
		subtest(t, name, onBoth, func(r *rig) {
			c.do(r)
			r.expect(c.want)
		})
	}
}

// onBoth runs a test on the embedded server and on a real server. A short test runs on the real server alone. Each
// has the test's clock, which only r.at moves.
func onBoth(t *testing.T, test func(r *rig)) {
	t.Helper()
	for _, embedded := range testkit.Size([]bool{false, true}, []bool{false}) {
		t.Run(serverName(embedded), func(t *testing.T) {
			t.Parallel()
			test(newRig(t, embedded))
		})
	}
}

// onReal runs a test on a real server alone. It is about how much one call does, or about what another program wrote,
// and so takes many calls, which an embedded server makes slowly.
func onReal(t *testing.T, test func(r *rig)) {
	t.Helper()
	test(newRig(t, false))
}

// subtest runs a test of a name on these servers.
func subtest(t *testing.T, name string, on func(t *testing.T, test func(r *rig)), test func(r *rig)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { on(t, test) })
}

func serverName(embedded bool) string {
	if embedded {
		return "miniredis"
	}
	return "redis-server"
}

// of is the key of a structure.
func (k *keys) of(structure string) string {
	return k.all[slices.Index(structures[:], structure)].(string)
}

// A rig is one queue that a test drives call by call. Messages have short names, and
// instants are durations since its base.
type rig struct {
	*Store
	t       testing.TB
	name    string
	now     int64             // the server's clock, unix us
	set     func(us int64)    // sets it
	with    FetchSettings     // of every fetch
	doneMax int               // of every settlement
	limits  RateLimits        // of every fetch
	tick    func() taking     // a tick and a fetch of some consumer that hands out nothing
	ticked  map[string]bool   // callers that have ticked
	leases  map[string]*Lease // under which each delivery was handed out last

	vanished int64 // messages that do has deleted
}

const (
	rigBase  = queuetest.Clock
	rigLease = 10 * time.Second
)

func newRig(t testing.TB, embedded bool) *rig {
	if !embedded {
		return rigAt(t, queuetest.Shared.Addr())
	}
	server := miniredis.RunT(t)
	return rigOf(t, queuetest.PatientClient(server.Addr()), func(us int64) { server.SetTime(time.UnixMicro(us)) })
}

// rigAt is a rig on a real server.
func rigAt(t testing.TB, addr string) *rig {
	cli, clock := queuetest.PatientClient(addr), "clock of "+t.Name()
	cli.AddHook(clockOf(clock)) // what tests call themselves
	t.Cleanup(link.Interpose(cli, clockOf(clock)))
	r := rigOf(t, cli, func(us int64) {
		text := "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], ARGV[1], ARGV[2])"
		queuetest.Must(t, cli.Eval(queuetest.CtxB, text, []string{clock}, us/1e6, us%1e6).Err())
	})
	t.Cleanup(func() { cli.Del(queuetest.CtxB, clock) })
	return r
}

func rigOf(t testing.TB, cli *redis.Client, set func(us int64)) *rig {
	r := &rig{t: t, name: strings.ReplaceAll(t.Name(), "/", "_"), set: set,
		with:   FetchSettings{Lease: rigLease, MaxLosses: 3},
		leases: map[string]*Lease{}, ticked: map[string]bool{}}
	r.Store = NewStore(cli, "dq", r.name)
	r.Store.AttemptTimeout = time.Minute // the embedded server is slow, and a call is made once
	t.Cleanup(func() {
		cli.Del(queuetest.CtxB, conc.Mapped(r.Keys.all, func(key *any) string { return (*key).(string) })...)
		if err := cli.Close(); err != nil {
			t.Errorf("closing the client: %v", err)
		}
	})
	ticker := NewCaller()
	r.tick = func() taking { return r.fetch(ticker, 0) }
	r.at(0)
	return r
}

// clockOf makes scripts on a real server read the time from a key: TIME cannot be set.
func clockOf(key string) queuetest.CommandHook {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		args := cmd.Args()
		switch cmd.Name() {
		case "evalsha":
			i := slices.IndexFunc(everyScript, func(s namedScript) bool { return s.SHA == args[1] })
			args[0], args[1] = "eval", everyScript[i].Text
		case "eval":
		default:
			return next(ctx, cmd)
		}
		args[1] = strings.ReplaceAll(args[1].(string), "redis.call('TIME')", "redis.call('LRANGE', '"+key+"', 0, 1)")
		return next(ctx, cmd)
	}
}

type namedScript struct {
	*Script
	name string // of its file
}

var everyScript = []namedScript{
	{SendScript, "send"}, {SingleScript, "single"}, {PutScript, "put"}, {ForgetScript, "forget"},
	{FetchScript, "fetch"}, {TickScript, "tick"}, {SettleScript, "settle"}, {KeepScript, "keep"},
	{ExtendScript, "extend"}, {InterceptScript, "intercept"}, {CountsScript, "counts"}, {BalanceScript, "balance"},
	{LookScript, "look"},
	{ListScripts[statePending], "list"}, {ListScripts[stateWaiting], "list"}, {ListScripts[stateUnack], "held"},
	{SteerScript, "steer"}, {SetScript, "set"}, {DropScript, "drop"}, {ShardsScript, "shards"},
	{ConsumersScript, "consumers"}, {HistoryScript, "history"}, {ForecastScript, "forecast"}, {AwaitScript, "await"},
	{LanesScript, "lanes"}, {SequencesScript, "sequences"}, {sequenceScript, "sequence"}, {repairScript, "repair"},
	{NoteScript, "note"}, {JournalScript, "journal"},
}

// at sets the server's clock.
func (r *rig) at(d time.Duration) {
	r.now = rigBase + d.Microseconds()
	r.set(r.now)
}

func (r *rig) since(us int64) time.Duration { return time.Duration(us-rigBase) * time.Microsecond }

// tickTo moves the clock on, while a consumer ticks every third of a lease.
func (r *rig) tickTo(d time.Duration) {
	r.t.Helper()
	for now := r.since(r.now); now < d; {
		now = min(now+r.with.Lease/3, d)
		r.at(now)
		r.tick()
	}
}

// lapse lets the leases of 10 s end that began before d: a consumer ticks until a fifth of a lease before d, and at d.
func (r *rig) lapse(d time.Duration) taking {
	r.t.Helper()
	r.tickTo(d - r.with.Lease/5)
	r.at(d)
	return r.tick()
}

// tagFor is the tag of a short name, which may have its delivery number before it.
func tagFor(name string) string {
	if n, name, ok := strings.Cut(name, ":"); ok {
		return n + ":" + queuetest.IDOf(name)
	}
	return queuetest.IDOf(name)
}

var idPattern = regexp.MustCompile(queuetest.IDHead + "([0-9a-f]{12})")

// names puts short names in place of ids.
func names(text string) string {
	return idPattern.ReplaceAllStringFunc(text, func(id string) string {
		raw, err := hex.DecodeString(id[len(queuetest.IDHead):])
		if err != nil {
			return id
		}
		return strings.TrimLeft(string(raw), "\x00")
	})
}

// msg is a message that is due after d; its payload is its name unless rest says otherwise.
func msg(name string, d time.Duration, rest ...func(*message.Envelope)) *SendMessage {
	e, w := message.Envelope{Payload: name, Retries: 3}, message.When{Us: d.Microseconds()}
	for _, f := range rest {
		f(&e)
	}
	return &SendMessage{ID: queuetest.IDOf(name), Key: e.Key, When: w, Version: e.Version(), Text: e.Encode(w)}
}

func keyed(key string) func(*message.Envelope) { return func(e *message.Envelope) { e.Key = key } }

func sized(n int) func(*message.Envelope) {
	return func(e *message.Envelope) { e.Payload = strings.Repeat("x", n) }
}

func (r *rig) do(args ...any) {
	r.t.Helper()
	there := r.Cli.HLen(queuetest.CtxB, r.Keys.msg).Val()
	if err := r.Cli.Do(queuetest.CtxB, args...).Err(); err != nil {
		r.t.Fatalf("%v: %v", args, err)
	}
	if r.vanished += there - r.Cli.HLen(queuetest.CtxB, r.Keys.msg).Val(); slices.Contains(args[1:], any(r.Keys.State)) &&
		args[0] == "DEL" {
		r.vanished = 0 // the books are opened again
	}
}

// equal compares the answer of a call.
func (r *rig) equal(what string, got, want any) {
	r.t.Helper()
	if !reflect.DeepEqual(got, want) {
		r.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// read returns the whole state, and checks the invariants.
func (r *rig) read() *check.State {
	r.t.Helper()
	return check.AssertMissing(r.t, r.Cli, "dq", r.name, r.vanished)
}

// text is the whole state in words: `pending a@1s ready 2:b unack c@10s retry 2:d@5s garbage e@0s done f@1m0s result
// f=3 parts g:2=5 missing h=2 fail b=2/0/0@0s!text key k=a sequence s=3 holds k@5s wake 1s dropped 1`; a failure record
// is <delivery>/<failures>/<losses>@<when>, and `armed` stands for `wake` where somebody took the marker. Callers'
// calls, grace, lane, big and times of calls have tests of their own.
func (r *rig) text(s *check.State) string {
	var words []string
	list := func(name string, each []string) {
		if len(each) > 0 {
			words = append(append(words, name), each...)
		}
	}
	scored := func(name string, entries []check.Entry) {
		list(name, conc.Mapped(entries, func(e *check.Entry) string {
			return names(e.Tag) + "@" + r.since(e.Score).String()
		}))
	}
	scored("pending", s.Pending)
	list("ready", conc.Mapped(s.Ready, func(e *check.Entry) string { return names(e.Tag) }))
	scored("unack",
		slices.SortedFunc(slices.Values(s.Unack), func(a, b check.Entry) int { // leases of one end have names by chance
			return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Tag, b.Tag))
		}))
	scored("retry", s.Retry)
	scored("waiting", s.Waiting)
	scored("garbage", s.Garbage)
	scored("done", s.Done)
	list("result", inOrder(s.Results))
	list("parts", inOrder(s.Parts))
	list("missing", inOrder(s.Missing))
	list("left", conc.Mapped(inOrder(s.Left), func(word *string) string { return strings.ReplaceAll(*word, " ", "+") }))
	list("fail", conc.Mapped(slices.Sorted(maps.Keys(s.Fail)), func(id *string) string {
		return r.failText(*id, s.Fail[*id])
	}))
	list("key", inOrder(s.Keys))
	var turns []string
	for _, m := range s.Lanes {
		if !m.Waits {
			turns = append(turns, m.Lane+"="+names(m.Tag.Tag))
		}
	}
	list("turns", turns)
	numbers := map[string]int64{}
	for name, digits := range s.Sequences {
		numbers[name], _ = message.SequenceNumber(digits)
	}
	list("sequence", inOrder(numbers))
	list("holds", conc.Mapped(s.Holds, func(m *check.Marker) string { return m.Member + "@" + r.since(m.Score).String() }))
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

// inOrder has a word for each entry: <name>=<value>.
func inOrder[V any](all map[string]V) []string {
	return conc.Mapped(slices.Sorted(maps.Keys(all)), func(name *string) string {
		return names(fmt.Sprintf("%s=%v", *name, all[*name]))
	})
}

func (r *rig) failText(id string, f check.Fail) string {
	when := r.since(f.When).String()
	if f.Superseded {
		when = "superseded"
	}
	word := fmt.Sprintf("%s=%d/%d/%d@%s", names(id), f.Delivery, f.Failures, f.Losses, when)
	switch f.Error {
	case "":
		return word
	case PoisonText:
		return word + "!poison"
	case queuetest.UnreceivedText:
		return word + "!unreceived"
	case queuetest.LostText:
		return word + "!lost"
	}
	return word + "!" + strings.ReplaceAll(f.Error, " ", "_")
}

// expect wants this state, in the words of text. An instant may be a range, as in 1s~1.5s.
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
	at, err1 := time.ParseDuration(got[i:])
	from, err2 := time.ParseDuration(lo[j:])
	to, err3 := time.ParseDuration(hi)
	return errors.Join(err1, err2, err3) == nil && from <= at && at <= to
}
