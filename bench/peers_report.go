package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The parts of the document. Each run writes its own and leaves the others as they are; the last is written by hand.
const (
	besideOthers  = "## Beside what people would pick instead\n"
	againstBare   = "## Against bare commands\n"
	byHand        = "## What bounds the speed\n"
	documentTitle = "# Benchmarks\n\n"
)

var documentParts = []string{besideOthers, againstBare, byHand}

// writePart replaces one part of the document at path.
func writePart(path, part, text string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("report: %w", err)
	}
	parts := map[string]string{}
	for i, rest := 0, string(old); i < len(documentParts); i++ {
		_, after, found := strings.Cut(rest, documentParts[i])
		if !found {
			continue
		}
		rest = after
		for _, next := range documentParts[i+1:] {
			after, _, _ = strings.Cut(after, next)
		}
		parts[documentParts[i]] = after
	}
	parts[part] = "\n" + text + "\n"
	var b strings.Builder
	b.WriteString(documentTitle)
	for _, p := range documentParts {
		if text, ok := parts[p]; ok {
			b.WriteString(p + text)
		}
	}
	if err := os.WriteFile(path, []byte(strings.TrimRight(b.String(), "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// write writes this run's part of the document, and its pictures.
func (r *peersRun) write(ctx context.Context, begun time.Time) error {
	about, err := describeMachine(ctx)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Written by `cd bench && go run . peers%s` on %s, in %s, on %s, with delayqueue %s.\n"+
		"Figures are medians of %d measurements, of lone sends %d, each on a server of its own; ± is half of what lies "+
		"between the highest and the lowest. The contenders take turns, and are idle at the same time. Figures of a backlog "+
		"are medians of %d on one server. Consumers are killed %d times.\n\n",
		choose(r.full, " -full", ""), about.when.UTC().Format("2006-01-02"), time.Since(begun).Round(time.Second),
		about.machine, about.commit, r.rounds, 3*r.rounds, peerBacklogMeasures, killRounds)
	b.WriteString("| | versions | settings |\n|---|---|---|\n")
	for _, c := range contenders() {
		if _, missing := r.missing[c.name]; missing {
			continue
		}
		versions, err := c.versions(ctx)
		if err != nil {
			return fmt.Errorf("%s: version: %w", c.name, err)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.name, strings.Join(versions, ", "), c.settings)
	}
	for _, name := range slices.Sorted(maps.Keys(r.missing)) {
		fmt.Fprintf(&b, "\n**%s is missing on this machine.**\n", name)
	}
	b.WriteString("\n" + peerNotes + "\n")
	fmt.Fprintf(&b, "\n### Targets beside them\n\n%s", targetsOf(r.res, peerTargets()).markdown())
	for _, p := range r.pictures() {
		if err := p.write(filepath.Dir(document)); err != nil {
			return err
		}
	}
	for _, t := range r.tables() {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", t.title, peerSectionNotes[t.title])
		for _, p := range r.pictures() {
			if p.section == t.title {
				b.WriteString(p.markdown() + "\n\n")
			}
		}
		b.WriteString(t.figures())
	}
	return writePart(document, besideOthers, b.String())
}

// peerNotes say what is compared.
const peerNotes = "Client, server and bench share the machine's cores. Payloads have 100 bytes, and handlers do " +
	"nothing. A message that is sent is due in an hour, and what is handled was due at once. Each client is one " +
	"process: 64 callers are goroutines, or promises of Node. CPU time is that of all threads and processes of the " +
	"server, and of the client. Redis has AOF with `appendfsync everysec` and `noeviction` for all three that use it. " +
	"The library's figures differ from those against bare commands below: here its workers are a process of their own, " +
	"handlers get the whole message, and an idle consumer has 64 workers. " +
	"hdt3213/delayqueue has no figures, because its module could not be downloaded here."

// figures is a table for a document whose first column alone is text.
func (t table) figures() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|---|%s\n", strings.Join(t.head, " | "), strings.Repeat("--:|", len(t.head)-1))
	for _, line := range t.lines {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
	}
	return b.String()
}

// peerSectionNotes say what the figures of a table are, and what a reader would ask.
var peerSectionNotes = map[string]string{
	titleThroughput: "`none`: there is no such thing. The server's CPU time includes what it does in between: Redis " +
		"writes its log anew as it grows, and PostgreSQL vacuums.",
	titleStrict: "Redis has `appendfsync always`, and beanstalkd `-f 0`. River's figures are those above, because with " +
		"PostgreSQL's defaults each commit is on disk when it returns.",
	titleLateness: "4,000 messages, sent ten seconds before the first is due, and one consumer with 64 workers. asynq " +
		"looks every 5 s, its default (`DelayedTaskCheckInterval`). asynq and beanstalkd keep whole seconds; beanstalkd's " +
		"delays are rounded up, so that none is early. BullMQ keeps whole milliseconds, and was given such; its worker " +
		"waits with a timeout, which Redis notices ten times a second (`hz 10`). River looks every 20 ms by the " +
		"settings above, and every second by its defaults. The table has medians of the rounds, and of what was early " +
		"or never came the lowest and the highest. The picture has the messages of all rounds; those that were early are " +
		"drawn at 0.1 ms.",
	titleIdle: fmt.Sprintf("One process with 64 workers, for %.0f s. Commands of Redis include those inside scripts, of "+
		"PostgreSQL transactions are counted. A worker of beanstalkd waits for an answer. River looks every 20 ms by the "+
		"settings above, and every second by its defaults.", idleOver.Seconds()),
	titleBacklog: "The pending messages are due at random instants of the next day. Those that are measured are sent " +
		"by 64 callers, due two seconds later, and handled by 64 workers. So the drain includes what makes a delayed " +
		"message due. Memory is what Redis's `used_memory`, beanstalkd's process, and River's database on disk have " +
		"grown by while the pending messages were sent. The logs of all three servers come on top of that.",
	titleKill: "The consumer had 100 workers, and was killed at a random moment within a minute. Another one, idle, was " +
		"there. The lowest and the highest of all rounds. River runs again what a dead process had after an hour " +
		"(RescueStuckJobsAfter), which was not waited for. BullMQ counts a stall, and the second one fails a message " +
		"(`maxStalledCount`). beanstalkd counts none.",
	titleKillBusy: "Each had 64 workers, and a handler took 10 ms. They were idle for one to two minutes. Then the " +
		"messages came, and one consumer was killed when between a tenth and six tenths of the messages were handled. The " +
		"other one went on: it handled the rest, and what the dead one had had in hand. Handled twice are those whose " +
		"handler had ended in the process that died, also those that River will handle again after an hour. The lowest and " +
		"the highest of all rounds.",
}
