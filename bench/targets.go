package main

import "slices"

// A target is what the library must reach.
type target struct {
	what  string
	limit float64
	least bool // the limit is the least, not the most
	value func(res *results) (float64, bool)
}

// own is the library's own figure.
func own(row string, m metric) func(*results) (float64, bool) {
	return func(res *results) (float64, bool) { return res.of(row, nameLibrary, m) }
}

// to is the library's figure as a multiple of another one's.
func to(row string, m metric, otherRow, other string) func(*results) (float64, bool) {
	return func(res *results) (float64, bool) {
		mine, ok := res.of(row, nameLibrary, m)
		theirs, ok2 := res.of(otherRow, other, m)
		return mine / theirs, ok && ok2
	}
}

// highest is the library's highest figure of all rounds.
func highest(name string, m metric) func(*results) (float64, bool) {
	return func(res *results) (float64, bool) {
		found := res.find(name)
		if found == nil || found.values(nameLibrary, m) == nil {
			return 0, false
		}
		return slices.Max(found.values(nameLibrary, m)), true
	}
}

// sum of two.
func sum(a, b func(*results) (float64, bool)) func(*results) (float64, bool) {
	return func(res *results) (float64, bool) {
		x, ok := a(res)
		y, ok2 := b(res)
		return x + y, ok && ok2
	}
}

// worst is the highest figure of several rows that are there.
func worst(m metric, rows ...string) func(*results) (float64, bool) {
	return func(res *results) (highest float64, any bool) {
		for _, r := range rows {
			if v, ok := res.of(r, nameLibrary, m); ok {
				highest, any = max(highest, v), true
			}
		}
		return highest, any
	}
}

// targets are those of the design.
func targets() []target {
	full := backlogLevels(false)
	most := full[len(full)-1]
	return []target{
		{"send, batches of 500: x floor", 0.8, true, to(sendBatch, rate, sendBatch, nameFloor)},
		{"drain, 64 workers: x floor", 1, true, to(drain64, rate, drain64, nameFloor)},
		{"drain, 64 workers: Redis CPU x floor", 0.9, false, to(drain64, redisCPU, drain64, nameFloor)},
		{"drain, 1 worker: messages/s", 200_000, true, own(drain1, rate)},
		{"live at 10k/s: p99 ms from send to handler", 5, false, own(livePaced, lateP99)},
		{"lateness, 1 consumer: p50 ms", 1, false, own(lateName(1), lateP50)},
		{"lateness, 1 consumer: p99 ms", 2, false, own(lateName(1), lateP99)},
		{"lateness, 16 consumers: p99 ms", 3, false, own(lateName(16), lateP99)},
		{"lateness, 64 consumers: p99 ms", 3, false, own(lateName(64), lateP99)},
		{"lateness: early", 0, false, worst(early, livePaced, lateName(1), lateName(16), lateName(64), herdName)},
		{"herd: fetch calls a message", 1, false, own(herdName, fetches)},
		{"herd: p99 ms", 4, false, own(herdName, lateP99)},
		{"999 lanes beside one with 500 thousand due: p99 ms", 4, false, own(lanesName(laneBacklog), lateP99)},
		{"idle: round trips/s", 1.5, false, own(idleName, tripsSecond)},
		{"idle: commands/s", 14, false, own(idleName, commandsSecond)},
		{"idle: % of a core, server", 0.3, false, own(idleName, redisShare)},
		{"idle: commands/s of 16 queues x those of one", 3, false,
			to(idleQueuesName(16), commandsSecond, idleName, nameLibrary)},
		{"idle: commands/s of 1,000 queues x those of one", 240, false,
			to(idleQueuesName(1000), commandsSecond, idleName, nameLibrary)},
		{"memory: bytes a message", 365, false, own(memName, bytesEach)},
		{"backlog of 5 million: send's Redis CPU x that at 0", 1.5, false,
			to(backlogName("send", most), redisCPU, backlogName("send", 0), nameLibrary)},
		{"backlog of 5 million: drain's Redis CPU x that at 0", 1.5, false,
			to(backlogName("drain", most), redisCPU, backlogName("drain", 0), nameLibrary)},
		{"mass: longest hold ms", 5, false, own(massName, holdMs)},
		{"mass: PING p99 ms", 10, false, own(massName, pingP99)},
		{"allocations, sent in batches and consumed", 5, false, sum(own(sendBatch, allocs), own(drain64, allocs))},
	}
}

// peerTargets are those beside others: their value is a multiple of another contender's.
func peerTargets() []target {
	return []target{
		{"send, one at a time: messages/s x asynq", 1, true, to(send1, rate, send1, nameAsynq)},
		{"send, one at a time: server CPU x asynq", 1.05, false, to(send1, serverCPU, send1, nameAsynq)},
		{"send, one at a time: client CPU x asynq", 1, false, to(send1, clientCPU, send1, nameAsynq)},
		{"send, 64 callers: messages/s x the best of the others", 2.5, true, toBest(send64, rate)},
		{"send, batches of 500: messages/s x the best of the others", 2, true, toBest(sendBatch, rate)},
		{"handle, 64 workers: messages/s x the best of the others", 8, true, toBest(drain64, rate)},
		{"lateness: p50 ms", 1.5, false, own("lateness", lateP50)},
		{"lateness: p99 ms", 3, false, own("lateness", lateP99)},
		{"lateness: early", 0, false, highest("lateness", early)},
		{"lateness: never came", 0, false, highest("lateness", never)},
		{"idle: client, % of a core", 0.3, false, own(idleName, clientShare)},
		{"kill -9: run again, max s", 11, false, highest(killName, againMax)},
		{"kill -9: not run again, messages", 0, false, highest(killName, never)},
		{"kill -9: retries charged", 0, false, highest(killName, charged)},
		{"kill -9 of one of two: all are handled after, max s", 11, false, highest(killBusyName, againMax)},
		{"kill -9 of one of two: not handled, messages", 0, false, highest(killBusyName, never)},
	}
}

// toBest is the library's figure as a multiple of the highest of the other contenders.
func toBest(row string, m metric) func(*results) (float64, bool) {
	return func(res *results) (float64, bool) {
		mine, ok := res.of(row, nameLibrary, m)
		best := 0.0
		for _, c := range contenders() {
			if v, ok := res.of(row, c.name, m); ok && c.name != nameLibrary {
				best = max(best, v)
			}
		}
		return mine / best, ok && best > 0
	}
}

// targetsOf says how those of all fared that were measured.
func targetsOf(res *results, all []target) table {
	out := table{title: "Targets", head: []string{"", "target", "measured", ""}}
	for _, t := range all {
		v, ok := t.value(res)
		if !ok {
			continue
		}
		want, reached := "at most "+figure(t.limit), v <= t.limit
		if t.least {
			want, reached = "at least "+figure(t.limit), v >= t.limit
		}
		out.lines = append(out.lines, []string{t.what, want, figure(v), choose(reached, "reached", "NOT reached")})
	}
	return out
}
