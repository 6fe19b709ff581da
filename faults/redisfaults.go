package main

import (
	"bytes"
	"os"
	"path/filepath"
	"time"
)

// Faults of one Redis server.
var redisFaults = []scenario{
	{
		name:  "Redis killed, appendfsync always",
		holds: "every accepted send is there, and no send fails; consuming goes on within 2 s of the server's return",
		setUp: oneServer("--appendonly", "yes", "--appendfsync", "always"),
		load:  longLease,
		hit:   restartServer,
		every: 3 * time.Second,
		rules: rules{resume: 2 * time.Second},
		check: wantNoRefusals,
	},
	{
		name:  "power lost, appendfsync everysec",
		holds: "lost is what Redis itself lost, and no more; consumers notice it; new messages work",
		setUp: wired("--appendonly", "yes", "--appendfsync", "everysec"),
		load:  longLease,
		hit:   func(t *trial) { t.wipe(t.tearLog) },
		every: 3 * time.Second,
		rules: rules{
			resume: 2 * time.Second, lossy: "the last second was not on disk yet",
			duplicate: "Redis forgot the last second",
		},
		check: wantLoss,
	},
	{
		name:  "Redis killed, no persistence",
		holds: "lost is what Redis itself lost, and no more; consumers notice it; new messages work",
		setUp: wired(),
		load:  longLease,
		hit:   func(t *trial) { t.wipe(func() {}) },
		every: 3 * time.Second,
		rules: rules{
			resume: 2 * time.Second, lossy: "nothing was on disk",
			duplicate: "Redis forgot that it was sent, and its sender had no answer yet",
		},
		check: wantLoss,
	},
	{
		name:  "Redis hung (SIGSTOP 3 s)",
		holds: "consuming goes on within 2 s of its end; no send fails",
		load:  longLease,
		hit:   during(3*time.Second, func(t *trial) { t.server.Pause() }, func(t *trial) { t.server.Resume() }),
		every: 2 * time.Second,
		rules: rules{resume: 2 * time.Second},
		check: wantNoRefusals,
	},
	{
		name:  "SCRIPT FLUSH every 50 ms",
		holds: "no error reaches the user",
		hit:   flushScripts,
		every: 50 * time.Millisecond,
		check: func(t *trial, v *verdict) {
			wantNoRefusals(t, v)
			if n := t.logged("cannot work with Redis"); n > 0 {
				v.problem("%d outages in the logs", n)
			}
		},
	},
}

func wantLoss(t *trial, v *verdict) {
	if v.lost == 0 {
		v.problem("Redis has lost nothing")
	}
	if t.logged("has gone back to an earlier state") == 0 {
		v.problem("no consumer noticed that the server has gone back")
	}
}

// unsynced is about what Redis writes to its log in a second here, in bytes.
const unsynced = 512 << 10

// transaction is how each call of a script begins in the log, if it writes more than once.
var transaction = []byte("*1\r\n$5\r\nMULTI\r\n")

// tearLog takes the end off the server's log, from the beginning of a transaction on. A process that is killed alone
// loses nothing: what it has written, the system still has.
//
// A log that ends within a command of a transaction is another matter: Redis 7.0 drops that command, keeps MULTI and
// those before it in the log, and carries them out when it starts the next time, with no EXEC of theirs. So half a
// script is done, whatever that script is; doctor finds it, and redis-check-aof --fix before the first start prevents
// it.
func (t *trial) tearLog() {
	logs, err := filepath.Glob(filepath.Join(t.serverDir, "appendonlydir", "*.incr.aof"))
	if len(logs) == 0 { // Redis before 7.0
		logs, err = filepath.Glob(filepath.Join(t.serverDir, "appendonly.aof"))
	}
	if err != nil || len(logs) != 1 {
		t.Fatalf("%d logs in %s: %v", len(logs), t.serverDir, err)
	}
	text, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	kept := max(0, len(text)-unsynced)
	begins := bytes.Index(text[kept:], transaction)
	if begins < 0 {
		t.Fatalf("no transaction in the last %d bytes of %s", len(text)-kept, logs[0])
	}
	if err := os.Truncate(logs[0], int64(kept+begins)); err != nil {
		t.Fatal(err)
	}
}

// wipe kills Redis and starts it again with less than it had, and reads what it has kept before
// programs reach it.
func (t *trial) wipe(lose func()) {
	t.strike(strike{wiped: true}, func() {
		t.server.Kill()
		t.wire.Cut()
		lose()
		t.server.Restart(t)
		state := t.read()
		if state == nil {
			t.Fatal("the queue cannot be read")
		}
		kept := map[string]bool{}
		for id := range state.Messages {
			kept[id] = true
		}
		t.kept = kept
		t.wire.Mend()
	})
}

// restartServer kills a server that keeps its data, and starts it again.
func restartServer(t *trial) {
	t.strike(strike{}, func() {
		t.server.Kill()
		t.wait(500 * time.Millisecond)
		t.server.Restart(t)
	})
}

func flushScripts(t *trial) {
	t.strike(strike{}, func() { t.do("SCRIPT", "FLUSH") })
}
