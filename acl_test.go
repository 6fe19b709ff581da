package delayqueue

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// A role is a kind of user in docs/acl.md.
type role struct {
	name    string
	scripts []*script
	files   []string // others, by where their text stands
	beside  string   // commands outside scripts
}

var (
	readScripts   = []*script{countsScript, lookScript, listScripts[StatePending], consumersScript, historyScript}
	changeScripts = []*script{steerScript, pauseScript, dropScript, interceptScript, sendScript, singleScript, forgetScript}

	roles = []role{
		{"publisher", []*script{sendScript, singleScript, forgetScript, interceptScript}, nil, ""},
		{"consumer", []*script{fetchScript, settleScript, extendScript}, nil, "bzpopmin"},
		{"reader", readScripts, nil, "scan hscan subscribe unsubscribe ping"},
		{
			"operator", slices.Concat(readScripts, changeScripts), []string{"internal/check/pages.go", "internal/check/probe.go", "cmd/delayqueue/repair.lua"},
			"scan hscan subscribe unsubscribe ping publish type pttl zscan lrange zscore info", // those from type on for doctor
		},
	}
)

var (
	luaComment = regexp.MustCompile(`--.*`)
	luaCommand = regexp.MustCompile(`redis\.p?call\(\s*'(\w+)'`)
)

// needs are the commands that a role's scripts call, and those beside them.
func (r role) needs(t *testing.T) []string {
	need := append(strings.Fields(r.beside), "eval", "evalsha")
	var texts []string
	for _, sc := range r.scripts {
		texts = append(texts, sc.text)
	}
	for _, file := range r.files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	for _, text := range texts {
		text = luaComment.ReplaceAllString(text, "")
		found := luaCommand.FindAllStringSubmatch(text, -1)
		if calls := len(regexp.MustCompile(`redis\.p?call\(`).FindAllString(text, -1)); calls != len(found) || calls == 0 {
			t.Errorf("%s: %d calls in a script, of which %d name their command: ACL users are told by these names", r.name, calls, len(found))
		}
		for _, call := range found {
			need = append(need, strings.ToLower(call[1]))
		}
	}
	slices.Sort(need)
	return slices.Compact(need)
}

// documentedUsers are the lines of docs/acl.md that make users, by user, in order.
func documentedUsers(t *testing.T) map[string][]string {
	text, err := os.ReadFile("docs/acl.md")
	if err != nil {
		t.Fatal(err)
	}
	users := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "ACL" && words[1] == "SETUSER" {
			users[words[2]] = append(users[words[2]], strings.TrimSpace(line))
		}
	}
	return users
}

// TestRolesAreDocumented: the line of each role allows what its scripts call, and no more.
func TestRolesAreDocumented(t *testing.T) {
	t.Parallel()
	users := documentedUsers(t)
	for _, r := range roles {
		if len(users[r.name]) == 0 {
			t.Errorf("docs/acl.md has no line for %s", r.name)
			continue
		}
		var other, has []string
		for word := range strings.FieldsSeq(users[r.name][0]) {
			if command, ok := strings.CutPrefix(word, "+"); ok {
				has = append(has, command)
			} else {
				other = append(other, word)
			}
		}
		need := r.needs(t)
		right := strings.Join(other, " ") + " +" + strings.Join(need, " +")
		if *writeACL {
			rewrite(t, users[r.name][0], right)
			continue
		}
		for _, command := range need {
			if !slices.Contains(has, command) {
				t.Errorf("docs/acl.md: %s lacks +%s (go test -run TestRolesAreDocumented . -acl.write writes it)", r.name, command)
			}
		}
		for _, command := range has {
			if !slices.Contains(need, command) {
				t.Errorf("docs/acl.md: %s needs no +%s (go test -run TestRolesAreDocumented . -acl.write takes it out)", r.name, command)
			}
		}
	}
}

var writeACL = flag.Bool("acl.write", false, "write into docs/acl.md what the scripts need")

// rewrite replaces a line of docs/acl.md.
func rewrite(t *testing.T, line, by string) {
	text, err := os.ReadFile("docs/acl.md")
	if err == nil {
		err = os.WriteFile("docs/acl.md", []byte(strings.Replace(string(text), line+"\n", by+"\n", 1)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLeastPrivilege: what docs/acl.md gives each role is enough: nothing of what it does is refused.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		addr := redistest.Start(t).Addr()
		leastPrivilege(t, []string{addr}, func(user string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, Username: user, Password: password(user)})
		})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		addrs := redistest.StartCluster(t, 2, 0).Addrs()
		leastPrivilege(t, addrs, func(user string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: user, Password: password(user)})
		})
	})
}

func password(user string) string {
	if user == "" {
		return ""
	}
	return "secret"
}

func leastPrivilege(t *testing.T, addrs []string, client func(user string) redis.UniversalClient) {
	single := len(addrs) == 1
	var nodes []*redis.Client
	for _, addr := range addrs {
		node := redisClient(t, addr)
		nodes = append(nodes, node)
		for _, lines := range documentedUsers(t) {
			for _, line := range lines {
				if !single || !strings.Contains(line, "+cluster|") {
					setUser(t, node, line)
				}
			}
		}
	}
	f := fixtureOn(t, client(""))
	f.name = "orders"
	users := map[string]redis.UniversalClient{}
	for _, r := range roles {
		cli := client(r.name)
		t.Cleanup(func() { _ = cli.Close() })
		users[r.name] = cli
	}
	f.publishes(users["publisher"])
	f.consumes(users["consumer"])
	f.reads(users["reader"])
	f.operates(users["operator"])
	for _, node := range nodes {
		for _, refusal := range refusals(t, node) {
			t.Errorf("refused: %s", refusal)
		}
	}
	f.refusesReader(users["reader"])
}

// setUser carries out a line of docs/acl.md.
func setUser(t *testing.T, admin *redis.Client, line string) {
	t.Helper()
	var args []any
	for word := range strings.FieldsSeq(line) {
		args = append(args, word)
	}
	if err := admin.Do(ctxB, args...).Err(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
}

// refusals is what a server's ACL LOG holds: user, what it did not get, and where. That go-redis tells a server
// about itself (CLIENT) with each connection is not needed, as docs/acl.md says.
func refusals(t *testing.T, admin *redis.Client) (all []string) {
	t.Helper()
	entries, err := admin.ACLLog(ctxB, 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Object == "client" || strings.HasPrefix(e.Object, "client|") {
			continue
		}
		all = append(all, fmt.Sprintf("%s: %s %s, %s", e.Username, e.Reason, e.Object, e.Context))
	}
	return all
}

// publishes does what a publisher does.
func (f *fixture) publishes(cli redis.UniversalClient) {
	p := NewPublisher(f.name, cli).WithReplicaAck(1, time.Millisecond)
	defer p.EnableReport().Stop()
	if _, err := p.Send(ctxB, "a", WithDelay(time.Hour)); !strings.Contains(fmt.Sprint(err), "0 of 1") {
		f.t.Errorf("publisher: with WAIT: %v", err)
	}
	p.WithReplicaAck(0, 0)
	var infos []*MessageInfo
	for i := range 4 {
		info, err := p.Send(ctxB, "a", WithDelay(time.Hour), WithKey(fmt.Sprint("k", i)))
		if err != nil {
			f.t.Fatalf("publisher: send: %v", err)
		}
		infos = append(infos, info)
	}
	_, twice := p.Send(ctxB, "a", WithKey("k0"))
	_, batch := p.SendBatch(ctxB, []Outgoing{{Payload: "a"}, {Payload: "b", Options: []MsgOption{WithSchedule(time.Now().Add(time.Hour))}}})
	for what, err := range map[string]error{
		"batch":     batch,
		"intercept": failure(p.TryIntercept(infos[0])),
		"by key":    failure(p.InterceptKey(ctxB, "k1")),
		"cancel":    failure(p.Cancel(ctxB, infos[2].ID)),
		"cancelled": failure(p.CancelKey(ctxB, "k3")),
	} {
		if err != nil {
			f.t.Errorf("publisher: %s: %v", what, err)
		}
	}
	if !errors.Is(twice, ErrDuplicateKey) {
		f.t.Errorf("publisher: a key that is taken: %v", twice)
	}
}

// consumes does what a consumer does, until all but what is an hour off is handled.
func (f *fixture) consumes(cli redis.UniversalClient) {
	sender := NewPublisher(f.name, f.cli)
	for _, payload := range []string{"fine", "fails once", "dies", "waits"} {
		if _, err := sender.Send(ctxB, payload, WithKey("consumed "+payload)); err != nil {
			f.t.Fatal(err)
		}
	}
	q := f.queueOn(cli, nil).WithLease(2*time.Second).WithConcurrent(4).WithNackRedeliveryDelay(time.Millisecond).WithGarbageRetention(time.Hour, 1)
	defer q.EnableReport().Stop()
	handled := make(chan string, 100)
	q.WithHandler(func(ctx context.Context, msg *Message) error {
		handled <- msg.Payload
		switch {
		case msg.Payload == "fails once" && msg.Delivery == 1:
			return errBoom
		case msg.Payload == "dies":
			return ErrSkipRetry
		case msg.Payload == "waits":
			select { // until its lease has been renewed twice
			case <-time.After(1500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return nil
	})
	done := q.StartConsume()
	for range 6 { // one of the batch, and these, one of them twice
		receive(f.t, "a message is handled", handled)
	}
	q.StopConsume()
	receive(f.t, "the consumer stops", done)
	if n := f.log.count("cannot wait for wake-ups") + f.log.count("NOPERM") + f.log.count("ACL"); n != 0 {
		f.t.Errorf("consumer: %d complaints in the log:\n%s", n, f.log)
	}
}

// failure is the error of a call, whatever else it returns.
func failure[T any](_ T, err error) error { return err }

// reads does what a reader does.
func (f *fixture) reads(cli redis.UniversalClient) {
	m := NewMonitor(f.name, cli)
	sub, err := m.ListenEvent(ctxB, func(Event) {})
	if err == nil {
		sub.Stop()
	}
	found := 0
	for name, err := range Queues(ctxB, cli) {
		if err != nil || name != f.name {
			f.t.Errorf("reader: queues: %q, %v", name, err)
		}
		found++
	}
	garbage, buried := m.List(ctxB, StateGarbage, Filter{}, "")
	if buried != nil || len(garbage.Messages) == 0 {
		f.t.Fatalf("reader: garbage: %+v, %v", garbage, buried)
	}
	checks := map[string]error{
		"listen":    err,
		"counts":    failure(m.Counts(ctxB)),
		"get":       failure(m.Get(ctxB, garbage.Messages[0].ID)),
		"consumers": failure(m.Consumers(ctxB)),
		"history":   failure(m.History(ctxB, Hourly, 1)),
	}
	for _, state := range []State{StatePending, StateReady, StateUnack, StateRetry} {
		checks["list "+state.String()] = failure(m.List(ctxB, state, Filter{Contains: "a"}, ""))
	}
	for what, err := range checks {
		if err != nil {
			f.t.Errorf("reader: %s: %v", what, err)
		}
	}
	if found != 1 {
		f.t.Errorf("reader: %d queues, want 1", found)
	}
}

// operates does what an operator does; at last it deletes the queue.
func (f *fixture) operates(cli redis.UniversalClient) {
	f.reads(cli)
	m := NewMonitor(f.name, cli)
	garbage, err := m.List(ctxB, StateGarbage, Filter{}, "")
	if err != nil || len(garbage.Messages) == 0 {
		f.t.Fatalf("operator: garbage: %+v, %v", garbage, err)
	}
	dead := garbage.Messages[0].ID
	p := NewPublisher(f.name, cli)
	sent, err := p.Send(ctxB, "by hand", WithDelay(time.Hour), WithKey("by hand"))
	if err != nil {
		f.t.Fatalf("operator: send: %v", err)
	}
	for _, step := range []struct {
		what string
		err  error
	}{
		{"requeue", m.Requeue(ctxB, dead)},
		{"reschedule", m.Reschedule(ctxB, dead, time.Now().Add(time.Hour))},
		{"reschedule by", m.RescheduleBy(ctxB, sent.ID, time.Minute)},
		{"run now", m.RunNow(ctxB, sent.ID)},
		{"intercept", failure(p.InterceptKey(ctxB, "by hand"))},
		{"pause", m.PauseUntil(ctxB, time.Now().Add(time.Hour))},
		{"resume", m.Resume(ctxB)},
		{"bulk", failure(m.BulkRescheduleBy(ctxB, Bulk{}, time.Minute))},
		{"delete", m.Delete(ctxB, dead)},
		{"bulk delete", failure(m.BulkDelete(ctxB, Bulk{States: []State{StatePending, StateReady, StateRetry, StateGarbage}}))},
		{"delete queue", m.DeleteQueue(ctxB, true)},
	} {
		if step.err != nil {
			f.t.Errorf("operator: %s: %v", step.what, step.err)
		}
	}
}

// refusesReader: whose line is for reading changes nothing, and is told which command it lacks.
func (f *fixture) refusesReader(cli redis.UniversalClient) {
	m := NewMonitor(f.name, cli)
	if _, err := NewPublisher(f.name, f.cli).Send(ctxB, "stays", WithDelay(time.Hour)); err != nil {
		f.t.Fatal(err)
	}
	content := func() *check.State {
		state := f.check()
		state.Now = 0
		return state
	}
	before := content()
	for what, err := range map[string]error{
		"send":   failure(NewPublisher(f.name, cli).Send(ctxB, "a")),
		"pause":  m.Pause(ctxB),
		"delete": failure(m.BulkDelete(ctxB, Bulk{States: []State{StatePending}})),
	} {
		if err == nil {
			f.t.Errorf("a reader may %s", what)
		} else if text := err.Error(); !strings.Contains(text, "NOPERM") && !strings.Contains(text, "ACL failure") && !strings.Contains(text, "can't run this command") {
			f.t.Errorf("a reader's %s: %v: not the refusal of an ACL", what, err)
		}
	}
	if after := content(); !reflect.DeepEqual(after, before) {
		f.t.Errorf("a reader changed the queue:\n%s\nnow:\n%s", before.Dump(), after.Dump())
	}
}

// TestACLPatterns: a name that holds the characters of patterns is escaped as Queues does it.
func TestACLPatterns(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	name := `a*b?c[d]\e`
	line := documentedUsers(t)["publisher"][0]
	setUser(t, admin, strings.ReplaceAll(line, "orders", globEscape(name)))
	setUser(t, admin, "ACL SETUSER publisher resetchannels &{dq:"+globEscape(name)+"}:events +publish")
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "publisher", Password: "secret"})
	defer cli.Close()
	for queue, allowed := range map[string]bool{name: true, `axxb?c[d]\e`: false, `a*b?cd\e`: false, `a*bxc[d]\e`: false} {
		_, err := NewPublisher(queue, cli).Send(ctxB, "a")
		if (err == nil) != allowed {
			t.Errorf("queue %s: allowed %v, want %v: %v", queue, err == nil, allowed, err)
		}
		err = newStore(cli, "dq", queue).publish(ctxB, []byte("[]"))
		if (err == nil) != allowed {
			t.Errorf("events of queue %s: allowed %v, want %v: %v", queue, err == nil, allowed, err)
		}
	}
}
