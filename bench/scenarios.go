package main

import (
	"fmt"
	"time"
)

// The rows that targets and the check refer to.
const (
	send1     = "send, 1 goroutine"
	send64    = "send, 64 goroutines"
	sendBatch = "send, batches of 500"
	drain64   = "drain, 64 workers"
	drain1    = "drain, 1 worker"
	liveAll   = "live, flat out"
	livePaced = "live, 10k/s"
	herdName  = "herd, 64 idle consumers"
	idleName  = "idle consumer"
	memName   = "memory"
	fairName  = "lanes"
	massName  = "mass, 1 million due in a second"
)

func lateName(consumers int) string {
	if consumers == 1 {
		return "lateness, 1 consumer"
	}
	return fmt.Sprintf("lateness, %d consumers", consumers)
}

// ownLane is as many lanes as messages.
const ownLane = 100_000

func laneName(row string, lanes int) string {
	if lanes == ownLane {
		return row + ", a lane each"
	}
	return fmt.Sprintf("%s, %d lanes", row, lanes)
}

// lateConsumers are the numbers of consumers whose lateness is measured.
var lateConsumers = []int{1, 16, 64}

// backlogLevels are how many messages are pending while others are measured.
func backlogLevels(quick bool) []int {
	if quick {
		return []int{0, 20_000}
	}
	return []int{0, 100_000, 1_000_000, 5_000_000}
}

// cheap are the scenarios of the check.
func cheap() []scenario {
	return []scenario{
		{name: sendBatch, kind: throughputTable, systems: systemNames, rounds: 5, measure: sendBatches(300_000, 0)},
		{name: drain64, kind: throughputTable, systems: systemNames, rounds: 5, measure: drain(64, 300_000, 0)},
		{name: memName, kind: memoryTable, systems: systemNames, rounds: 1, measure: memory(200_000)},
		// no ratio: are fetches known?
		{name: herdName, kind: latenessTable, systems: []string{nameLibrary}, rounds: 1, measure: herd(8, 50, time.Second)},
	}
}

// scenarios in the order in which they are measured and shown.
func scenarios(quick bool) []scenario {
	n, over, pause := 4000, 10*time.Second, 10*time.Second
	if quick {
		n, over, pause = 400, time.Second, 2*time.Second
	}
	all := []scenario{
		{name: send1, kind: throughputTable, systems: systemNames, rounds: 9, measure: sendSingly(1, 20_000)},
		{name: send64, kind: throughputTable, systems: systemNames, rounds: 9, measure: sendSingly(senders, 300_000)},
		{name: sendBatch, kind: throughputTable, systems: systemNames, rounds: 9, measure: sendBatches(300_000, 0)},
		{name: drain64, kind: throughputTable, systems: systemNames, rounds: 9, measure: drain(64, 300_000, 0)},
		{name: drain1, kind: throughputTable, systems: systemNames, rounds: 5, measure: drain(1, 200_000, 0)},
		{name: liveAll, kind: throughputTable, systems: systemNames, rounds: 5, measure: live(100_000)},
		{name: livePaced, kind: latenessTable, systems: []string{nameLibrary}, rounds: 3, measure: paced(10_000, over/4)},
	}
	for _, consumers := range lateConsumers {
		all = append(all, scenario{name: lateName(consumers), kind: latenessTable, systems: []string{nameLibrary}, rounds: 3,
			measure: lateness(consumers, n, over)})
	}
	all = append(all,
		scenario{name: herdName, kind: latenessTable, systems: []string{nameLibrary}, rounds: 3,
			measure: herd(64, 200, over/2)},
		scenario{name: fairName, kind: latenessTable, systems: []string{nameLibrary}, rounds: 3,
			measure: fairness(laneBacklog, 1000, over)},
		scenario{name: idleName, kind: idleTable, systems: []string{nameLibrary}, rounds: 1, measure: idle(pause)},
		scenario{name: memName, kind: memoryTable, systems: systemNames, rounds: 1, measure: memory(200_000)},
		scenario{name: massName, kind: massTable, systems: systemNames, rounds: 3, measure: mass(1_000_000)},
	)
	for _, queues := range idleCounts {
		all = append(all, scenario{name: idleQueuesName(queues), kind: idleTable, systems: []string{nameLibrary}, rounds: 1,
			measure: idleQueues(queues, 3*pause)})
	}
	for _, lanes := range []int{ownLane, 1000} {
		all = append(all,
			scenario{name: laneName(sendBatch, lanes), kind: throughputTable, systems: []string{nameLibrary}, rounds: 3,
				measure: sendBatches(100_000, lanes)},
			scenario{name: laneName(drain64, lanes), kind: throughputTable, systems: []string{nameLibrary}, rounds: 3,
				measure: drain(64, 100_000, lanes)},
		)
	}
	for _, fsync := range []string{"everysec", "always"} {
		args := []string{"--appendonly", "yes", "--appendfsync", fsync}
		all = append(all,
			scenario{name: "send, 64 goroutines, appendfsync " + fsync, kind: throughputTable, systems: systemNames, rounds: 3,
				args: args, measure: sendSingly(senders, 50_000)},
			scenario{name: "drain, 64 workers, appendfsync " + fsync, kind: throughputTable, systems: systemNames, rounds: 3,
				args: args, measure: drain(64, 100_000, 0)},
		)
	}
	return append(all, scenario{name: "backlog", kind: backlogTable, systems: systemNames, rounds: 1,
		measure: backlog(backlogLevels(quick), 100_000, n/4, over/2)})
}
