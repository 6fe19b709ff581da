package queuetest

import (
	"context"
	"errors"
	"fmt"
	"github.com/redis/go-redis/v9"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Tally counts how often each payload was handled.
type Tally struct {
	mu sync.Mutex
	N  map[string]int
}

func (c *Tally) Add(payload string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.N == nil {
		c.N = make(map[string]int)
	}
	c.N[payload]++
	return c.N[payload]
}

func (c *Tally) Of(payload string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.N[payload]
}

// Counts is how many payloads were handled, and how often in total.
func (c *Tally) Counts() (distinct, total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.N {
		total += n
	}
	return len(c.N), total
}

// A handOut is a fetch as the server had it.
type handOut struct {
	At int64 // the server's clock, unix us
	N  int   // deliveries
}

// A Ledger has all fetches of some consumers.
type Ledger struct {
	mu  sync.Mutex
	all []handOut
}

// Add notes a reply to a fetch: behind so many envelopes as its last text says stand the tags, and the server's clock
// (lua/fetch.lua).
func (l *Ledger) Add(reply []string) {
	envelopes, bad := strconv.Atoi(reply[len(reply)-1])
	at, worse := strconv.ParseInt(reply[envelopes+1], 10, 64)
	if bad != nil || worse != nil {
		panic(errors.Join(bad, worse))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, handOut{at, len(strings.Fields(reply[envelopes]))})
}

// Hook notes the fetches of a client's consumers. sha is the sum of the fetch script.
func (l *Ledger) Hook(sha string) CommandHook {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); err == nil && len(args) > 1 && args[1] == sha {
			l.Add(cmd.(*redis.StringSliceCmd).Val())
		}
		return err
	}
}

// Fetches are all fetches, in order.
func (l *Ledger) Fetches() []handOut {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.all)
	slices.SortFunc(all, func(a, b handOut) int { return int(a.At - b.At) })
	return all
}

// Keeps wants no time in which more was handed out than a rate allows, and says how much there was.
func (l *Ledger) Keeps(t *testing.T, burst, rate int, per time.Duration) (n int) {
	t.Helper()
	all := l.Fetches()
	for i := range all {
		sum := 0
		for j := i; j < len(all); j++ {
			sum += all[j].N
			if most := burst + int((all[j].At-all[i].At)*int64(rate)/per.Microseconds()); sum > most {
				t.Fatalf("%d were handed out in %v, at most %d may be", sum, time.Duration(all[j].At-all[i].At)*time.Microsecond,
					most)
			}
		}
		n += all[i].N
	}
	return n
}

// PartsOnce wants the parts `<sender> <n>` of so many senders to be in groups, each once, and those of one sender
// that are in one group in a row.
func PartsOnce(t *testing.T, groups [][]string, senders, each int) {
	t.Helper()
	seen := map[string]int{}
	for _, parts := range groups {
		last := map[int]int{}
		for _, part := range parts {
			var sender, n int
			if _, err := fmt.Sscan(part, &sender, &n); err != nil {
				t.Fatalf("part %q: %v", part, err)
			}
			if before, some := last[sender]; some && n != before+1 {
				t.Errorf("sender %d: part %d follows part %d in a group", sender, n, before)
			}
			last[sender] = n
			seen[part]++
		}
	}
	for sender := range senders {
		for n := range each {
			if times := seen[fmt.Sprint(sender, " ", n)]; times != 1 {
				t.Errorf("part %d of sender %d is there %d times", n, sender, times)
			}
		}
	}
	if len(seen) != senders*each {
		t.Errorf("%d parts, want %d", len(seen), senders*each)
	}
}

// Commands counts what a server executes during a call, by command, those inside scripts included.
func Commands(t *testing.T, cli *redis.Client, call func()) map[string]int {
	t.Helper()
	read := func() map[string]int {
		text, err := cli.Info(CtxB, "commandstats").Result()
		Must(t, err)
		stats := map[string]int{}
		for line := range strings.Lines(text) {
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
			n := 0
			if _, err := fmt.Sscanf(rest, "calls=%d,", &n); err == nil {
				stats[name] = n
			}
		}
		return stats
	}
	before := read()
	call()
	spent := map[string]int{}
	for name, n := range read() {
		if n -= before[name]; n > 0 && name != "info" {
			spent[name] = n
		}
	}
	return spent
}

// heldScript reads the tags that are held: those of a lease's list whose message is there, and is in no later delivery.
const heldScript = `
local held, lists = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #lists, 2 do
  for tag in string.gmatch(string.sub(lists[i], -1) ~= '#' and lists[i + 1] or '', '%S+') do
    local n, id = string.match(tag, '^(%d+):(.*)$')
    local last = string.match(redis.call('HGET', KEYS[3], id or tag) or '', '^%d+') or '1'
    if redis.call('HEXISTS', KEYS[2], id or tag) == 1 and tonumber(last) <= tonumber(n or '1') then
      held[#held + 1] = tag
    end
  end
end
return held`

// Held are the tags of the deliveries that are with consumers.
func (f *Base) Held() []string {
	f.T.Helper()
	tags, err := f.Cli.Eval(CtxB, heldScript, []string{f.Key("lease"), f.Key("msg"), f.Key("fail")}).StringSlice()
	Must(f.T, err)
	return tags
}
