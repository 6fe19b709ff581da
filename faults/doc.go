// Command faults stages what Redis, the network, the machine and the clock can break, under
// load, and judges what became of every message. It starts its own servers on free ports.
//
//	go run .                every fault, about twenty minutes; writes ../docs/reliability.md
//	go run . -fast          the ten that found most, about four minutes; nothing is written
//	go run . -only 'kill'   some of them; nothing is written
//	go run . -list          their names
//	go run . -soak 20       faults at random for 20 minutes; writes its part of the page
//
// There are five concepts:
//
//   - A program (program.go) is this binary again, as a producer or a consumer. Two producers
//     send 20,000 messages with unique payloads, and three consumers handle them. In some
//     scenarios producers are relays of the same outboxes (sequences.go), change the same
//     documents (debounce.go), send imports (imports.go, judged by sums.go), or are replicas
//     that run the same schedules (schedules.go). In others messages have lanes (lanes.go), or
//     kill their consumers (consumers.go).
//   - A ledger (ledger.go) is a file that one program appends to: each accepted send, each
//     handler's start and end, on disk before the program goes on. It is outside Redis, and
//     what a killed program has written stays.
//   - A scenario (scenario.go) says which servers there are, what strikes and how often, and
//     what may happen because of it: why a message may be handled twice, what Redis may lose.
//   - A trial (trial.go) runs one scenario: servers, programs, strikes, and the wait until the
//     queue is empty.
//     The row of the outbox is a program of its own (storm.go).
//   - The judge (judge.go) reads ledgers, strikes and the last state of the queue, and knows
//     nothing of Redis. It says what is wrong.
//
// What a handler does with a payload (slow, failing, giving up, killing) follows from the payload
// alone (manners), so the judge knows it too. Times are the wall clock of this one machine,
// which the servers share, unless a scenario gives a server another clock.
package main
