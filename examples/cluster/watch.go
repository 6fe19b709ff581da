//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// slots are those of a Cluster.
const slots = 16384

// A sight is what a look at a node has shown.
type sight struct {
	alive   bool
	primary string        // the port of the primary of a replica; "": the node is a primary
	calls   int64         // since the server was started
	rate    float64       // calls a second
	shards  []int         // whose slots the node has, also if the node is dead
	pending int64         // messages of these shards that are not due
	due     int64         // messages of these shards that are due, and that no handler has
	oldest  time.Duration // how long one of those has waited
}

// A watch shows what the nodes do: in a terminal a table that is drawn again in the same place, else a line each
// second.
type watch struct {
	nodes    nodes
	traffic  *traffic
	begun    time.Time
	killed   *node // nil: none
	killedAt time.Time
	heir     *node // the replica that has taken over; nil: none has
	back     bool  // the killed node is a replica

	count  int              // of the shards
	shards map[string]int64 // the slots of the shards that were found, by their hash tags
	seen   map[*node]sight
	looked time.Time
	last   tally // at the last look
	lines  int   // that were drawn
	width  int   // of what a line says of a node

	mu       sync.Mutex // guards what follows
	out      io.Writer
	terminal bool
	table    string // as it was drawn last
}

func newWatch(out io.Writer, ns nodes, t *traffic, shards int) *watch {
	file, ok := out.(*os.File)
	w := &watch{nodes: ns, traffic: t, begun: time.Now(), looked: time.Now(), count: shards, shards: map[string]int64{},
		seen: map[*node]sight{},
		out:  out, width: 9 + 3*((shards+2)/3)}
	if ok {
		info, err := file.Stat()
		w.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return w
}

// until draws until a time is over, ctx ends or enough says so.
func (w *watch) until(ctx context.Context, d time.Duration, enough func() bool) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	every := time.Second
	if w.terminal {
		every /= 2
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !enough() {
		select {
		case <-tick.C:
			w.draw()
		case <-ctx.Done():
			return
		}
	}
}

// look asks all nodes. A dead one refuses the connection at once.
func (w *watch) look(ctx context.Context, passed float64) {
	var owners []redis.ClusterSlot
	for _, n := range w.nodes {
		info, err := n.cli.Info(ctx).Result()
		was, now := w.seen[n], sight{alive: err == nil}
		if field(info, "role") == "slave" {
			now.primary = field(info, "master_port")
		}
		now.calls, _ = strconv.ParseInt(field(info, "total_commands_processed"), 10, 64)
		if was.alive && now.calls > was.calls {
			now.rate = float64(now.calls-was.calls) / passed
		}
		w.seen[n] = now
		if !now.alive {
			continue
		}
		if owners == nil || n != w.killed { // a node that has just come back may not know yet who the primaries are
			//lint:ignore SA1019 servers before 7.0 do not know its successor, CLUSTER SHARDS
			owners, _ = n.cli.ClusterSlots(ctx).Result()
		}
		if len(w.shards) < w.count && now.primary == "" {
			for keys := n.cli.Scan(ctx, 0, "{dq:"+queueName+"*}:state", 1000).Iterator(); keys.Next(ctx); {
				w.shards[strings.TrimSuffix(keys.Val(), ":state")] = n.cli.ClusterKeySlot(ctx, keys.Val()).Val()
			}
		}
		if w.killed != nil && w.heir == nil && now.primary == "" && ":"+was.primary == w.killed.name() {
			w.heir = n
			w.say("%s has taken over, %.1f s after the kill", n.name(), time.Since(w.killedAt).Seconds())
		}
		if w.heir != nil && !w.back && n == w.killed && now.primary != "" {
			w.back = true
			w.say("%s is back, as a replica of :%s", n.name(), now.primary)
		}
	}
	for tag, slot := range w.shards {
		for _, r := range owners {
			if int64(r.Start) <= slot && slot <= int64(r.End) && len(r.Nodes) > 0 {
				w.lookAt(ctx, r.Nodes[0].Addr, tag, slot)
			}
		}
	}
}

// lookAt adds what a shard holds to the sight of its node. docs/redis.md describes the keys.
func (w *watch) lookAt(ctx context.Context, addr, tag string, slot int64) {
	i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.addr() == addr })
	if i < 0 {
		return
	}
	n, now := w.nodes[i], time.Now().UnixMicro()
	s := w.seen[n]
	defer func() { w.seen[n] = s }()
	// The slots of the shards divide the circle of slots evenly, from that of the first shard on.
	distance := (slot - w.shards["{dq:"+queueName+"}"] + slots) % slots
	s.shards = append(s.shards, 1+int(distance*int64(w.count)+slots/2)/slots)
	slices.Sort(s.shards)
	if !s.alive {
		return
	}
	p := n.cli.Pipeline()
	pending := p.ZCount(ctx, tag+":pending", fmt.Sprint("(", now), "+inf")
	due, released := p.ZCount(ctx, tag+":pending", "-inf", fmt.Sprint(now)), p.LLen(ctx, tag+":ready")
	oldest := p.ZRangeWithScores(ctx, tag+":pending", 0, 0)
	_, _ = p.Exec(ctx)
	s.pending += pending.Val()
	s.due += due.Val() + released.Val()
	for _, z := range oldest.Val() {
		s.oldest = max(s.oldest, time.Duration(now-int64(z.Score))*time.Microsecond)
	}
}

// draw looks at the nodes, and shows them.
func (w *watch) draw() {
	passed := time.Since(w.looked).Seconds()
	if passed < 0.1 {
		return // what a node does in a second is not known from so little
	}
	w.looked = time.Now()
	w.look(context.Background(), passed)
	now, late := w.traffic.look()
	sent, handled := float64(now.sent-w.last.sent)/passed, float64(now.handled-w.last.handled)/passed
	w.last = now
	if !w.terminal {
		w.line(sent, handled, now.failed, late)
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-7s %-18s %-16s %8s %8s %8s %12s\n", w.at(), "node", "role", "shards", "calls/s", "not due",
		"due", "oldest due")
	for _, n := range w.nodes {
		s := w.seen[n]
		fmt.Fprintf(&b, "%10s  %-7s ", "", n.name())
		switch {
		case !s.alive && len(s.shards) > 0:
			fmt.Fprintf(&b, "%-18s %s stopped\n", "dead", numbers(s.shards))
		case !s.alive:
			b.WriteString("dead\n")
		case s.primary != "":
			fmt.Fprintf(&b, "%-18s %-16s %8.0f\n", "replica of :"+s.primary, "", s.rate)
		default:
			fmt.Fprintf(&b, "%-18s %-16s %8.0f %8d %8d %12s\n", "primary", numbers(s.shards), s.rate, s.pending, s.due,
				ms(s.oldest))
		}
	}
	fmt.Fprintf(&b, "%10s  a second: %.0f sent, %.0f handled, at most %s late; errors of sends so far: %d\n", "", sent,
		handled, ms(late), now.failed)
	w.print("", b.String())
}

// line is for an output that is no terminal.
func (w *watch) line(sent, handled float64, failed int, late time.Duration) {
	var head, row strings.Builder
	var due int64
	for _, n := range w.nodes {
		s := w.seen[n]
		cell := "replica"
		if !s.alive {
			cell = strings.TrimSpace("dead " + numbers(s.shards))
		} else if s.primary == "" {
			cell = fmt.Sprintf("%s %6.0f/s", numbers(s.shards), s.rate)
		}
		fmt.Fprintf(&head, "  %*s", w.width, n.name())
		fmt.Fprintf(&row, "  %*s", w.width, cell)
		due += s.due
	}
	if w.lines++; w.lines%20 == 1 {
		w.print(fmt.Sprintf("%10s%s %8s %9s %6s %6s %12s\n", "", &head, "sent/s", "handled/s", "errors", "due", "worst late"),
			"")
	}
	w.print(fmt.Sprintf("%s%s %8.0f %9.0f %6d %6d %12s\n", w.at(), &row, sent, handled, failed, due, ms(late)), "")
}

func (w *watch) at() string { return fmt.Sprintf("%8.1f s", time.Since(w.begun).Seconds()) }

// say shows a line that stays.
func (w *watch) say(format string, args ...any) {
	w.print(w.at()+"  "+fmt.Sprintf(format, args...)+"\n", "")
}

// Write shows a line of the log of the queue.
func (w *watch) Write(line []byte) (int, error) {
	w.say("%s", strings.TrimSpace(string(line)))
	return len(line), nil
}

// print writes lines that stay, above the table. A table that is not empty takes the place of the last one.
func (w *watch) print(lines, table string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := strings.Count(w.table, "\n"); n > 0 {
		lines = fmt.Sprintf("\r\x1b[%dA\x1b[J", n) + lines
	}
	if table != "" {
		w.table = table
	}
	_, _ = io.WriteString(w.out, lines+w.table)
}

func field(info, name string) string {
	_, value, _ := strings.Cut(info, "\n"+name+":")
	value, _, _ = strings.Cut(value, "\r")
	return value
}

func numbers(shards []int) string { return strings.Trim(fmt.Sprint(shards), "[]") }
