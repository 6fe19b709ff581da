package main

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A load is what a queue has to bear, and with what.
type load struct {
	size    int     // bytes of a payload
	rate    float64 // messages/s that are sent, and that are handled
	pending float64 // messages
	singly  bool    // sent one by one from many goroutines, not in batches
	soon    bool    // all wait for about as long; else they are due at random instants

	nodes       int     // primaries; 0: as many as are needed
	largest     int     // primaries that there will ever be; 0: twice the nodes, if so many shards are allowed
	memory      float64 // bytes of a node
	margin      float64 // of memory, as a part of the data, for copy-on-write and fragmentation
	utilisation float64 // of the core that carries out a node's commands, and of clients' cores
	replicas    int     // of each primary

	consumers int // processes; 0: as many as are needed
	senders   int // processes; 0: as many as consumers
	cores     int // of a consumer process
	handler   time.Duration
	workers   int // of a process; 0: as many as are needed

	nodeTimeout time.Duration // cluster-node-timeout
}

// check says what is wrong with a load.
func (l load) check() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	number := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	must(l.size >= 1 && l.size <= 1<<20, "-size is %d, and must be 1 to %d bytes", l.size, 1<<20)
	must(number(l.rate) && l.rate > 0 &&
		l.rate <= 1e9, "-rate is %g, and must be above 0 and at most 1e9 messages a second", l.rate)
	must(number(l.pending) && l.pending >= 0 && l.pending <= 1e12, "-pending is %g, and must be 0 to 1e12 messages",
		l.pending)
	must(l.nodes >= 0 &&
		l.nodes <= maxShards,
		"-nodes is %d, and must be 0 (as many as are needed) to %d, because a queue has at most %d shards",
		l.nodes, maxShards, maxShards)
	must(l.largest == 0 || l.largest >= max(l.nodes, 1) && l.largest <= maxShards,
		"-largest is %d, and must be at least -nodes and at most %d", l.largest, maxShards)
	must(number(l.memory) && l.memory >= 1e8, "-memory is %g GB, and must be at least 0.1", l.memory/1e9)
	must(number(l.margin) && l.margin >= 0 && l.margin <= 2, "-margin is %g %%, and must be 0 to 200", l.margin*100)
	must(number(l.utilisation) && l.utilisation > 0 &&
		l.utilisation <= 1, "-utilisation is %g %%, and must be above 0 and at most 100", l.utilisation*100)
	must(l.replicas >= 0 && l.replicas <= 5, "-replicas is %d, and must be 0 to 5", l.replicas)
	must(l.consumers >= 0 && l.consumers <= 1e5, "-consumers is %d, and must be 0 (as many as are needed) to 100000",
		l.consumers)
	must(l.senders >= 0 && l.senders <= 1e5, "-senders is %d, and must be 0 (as many as consumers) to 100000", l.senders)
	must(l.cores >= 1 && l.cores <= 1024, "-cores is %d, and must be 1 to 1024", l.cores)
	must(l.handler >= 0 && l.handler <= 24*time.Hour, "-handler is %v, and must be 0 to 24h", l.handler)
	must(l.workers >= 0, "-workers is %d, and must not be negative", l.workers)
	must(l.nodeTimeout > 0 && l.nodeTimeout <= time.Hour, "-node-timeout is %v, and must be above 0 and at most 1h",
		l.nodeTimeout)
	return errors.Join(errs...)
}

// A plan is what a load needs.
type plan struct {
	load // with what was left open

	bytes              float64 // of a pending message
	cpuSend, cpuHandle float64 // Redis, us a message
	byMemory, byCPU    int     // nodes
	dataNode, memNode  float64 // bytes of a node, without and with the margin
	memAll             float64 // with the margin, replicas included
	cpuNode            float64 // part of a core

	shards int
	evenly []int // numbers of nodes over which the shards divide evenly

	clientSend, clientHandle  float64 // cores in all
	busyWorkers               float64 // in all
	consumerNode, senderNode  int     // connections of a process to a node, at most
	connNode, connAll         int
	inNode, outNode, copyNode float64 // bytes a second: to a primary, from it to clients, from it to its replicas

	gap     time.Duration // of a failover
	waiting float64       // messages that become due on the node meanwhile
	catchUp time.Duration // until they are handled; 0: never
	missing []string      // what the load lacks
}

// planFor computes what a load needs.
func planFor(l load) (plan, error) {
	if err := l.check(); err != nil {
		return plan{}, err
	}
	p := plan{load: l}
	p.costs()
	p.byMemory = max(int(math.Ceil(p.pending*p.bytes*(1+p.margin)/p.memory)), 1)
	p.byCPU = max(int(math.Ceil(p.rate*(p.cpuSend+p.cpuHandle)/1e6/p.utilisation)), 1)
	need := max(p.byMemory, p.byCPU)
	if p.nodes == 0 {
		if need > maxShards {
			return plan{},
				fmt.Errorf("%d nodes are needed (memory: %d, CPU: %d), and one queue has at most %d shards: take nodes with "+
					"more memory, or split the work by name",
					need, p.byMemory, p.byCPU, maxShards)
		}
		p.nodes = need
		if p.largest != 0 && p.largest < need {
			return plan{}, fmt.Errorf("-largest is %d, and %d nodes are needed", p.largest, need)
		}
	}
	p.ofNodes()
	p.chooseShards()
	p.ofClients()
	p.ofFailover()
	p.judge()
	return p, nil
}

// costs are those of a message.
func (p *plan) costs() {
	more := float64(p.size - payloadSize)
	p.bytes = bytesMessage - allocated(payloadSize+envelopeBytes) + allocated(p.size+envelopeBytes)
	p.cpuSend = cpuSendBatches
	if p.singly {
		p.cpuSend = cpuSendSingly
	}
	// As they come: fetches are smaller than those of a backlog, so it costs at least as much.
	p.cpuHandle = max(cpuLive-cpuSendSingly, cpuDrain)
	if !p.soon {
		p.cpuSend += cpuSendSpread - cpuSendSoon
		p.cpuHandle += cpuDrainCold - cpuDrain
	}
	// Less than 100 bytes were not measured, and save little.
	p.cpuSend += max(more, 0) * cpuSendByte
	p.cpuHandle += max(more, 0) * cpuHandleByte
	send := clientSendBatch
	if p.singly {
		send = clientSendSingly
	}
	p.clientSend = p.rate / 1e6 * (send + max(more, 0)*clientSendByte)
	p.clientHandle = p.rate / 1e6 * (clientLive - clientSendSingly + max(more, 0)*clientHandleByte)
}

// allocated is what jemalloc takes for a Redis string of n bytes: a header, a zero at the end, and four sizes for
// each power of two.
func allocated(n int) float64 {
	switch {
	case n < 32:
		n += 2
	case n < 256:
		n += 4
	case n < 65536:
		n += 6
	default:
		n += 10
	}
	if n <= 128 {
		return float64((n + 15) / 16 * 16)
	}
	power := 128
	for power*2 < n {
		power *= 2
	}
	step := power / 4
	return float64((n + step - 1) / step * step)
}

// ofNodes is what a primary bears.
func (p *plan) ofNodes() {
	n := float64(p.nodes)
	p.dataNode = p.pending * p.bytes / n
	p.memNode = p.dataNode * (1 + p.margin)
	p.memAll = p.memNode * n * float64(1+p.replicas)
	p.cpuNode = p.rate * (p.cpuSend + p.cpuHandle) / 1e6 / n
	more := float64(p.size - payloadSize)
	p.inNode = p.rate / n * (wireSend + more)
	p.outNode = p.rate / n * (wireHandle + more)
	p.copyNode = p.rate / n * (wireReplica + wireSettled + more) * float64(p.replicas)
}

// chooseShards takes the smallest multiple of the nodes that the largest number of nodes divides, or which is at
// least that large.
func (p *plan) chooseShards() {
	if p.largest == 0 {
		p.largest = p.nodes * min(2, maxShards/p.nodes)
	}
	for s := p.nodes; s <= maxShards; s += p.nodes {
		if s%p.largest == 0 {
			p.shards = s
			break
		}
	}
	for s := p.nodes; s <= maxShards && p.shards == 0; s += p.nodes {
		if s >= p.largest {
			p.shards = s
		}
	}
	if p.shards == 0 { // the largest multiple is below it
		p.shards = maxShards / p.nodes * p.nodes
	}
	for n := 1; n <= p.shards; n++ {
		if p.shards%n == 0 {
			p.evenly = append(p.evenly, n)
		}
	}
}

// ofClients is what consumers and senders need.
func (p *plan) ofClients() {
	if p.consumers == 0 {
		byCores := math.Ceil(p.clientHandle / (float64(p.cores) * p.utilisation))
		byRate := math.Ceil(p.rate / (rateOfProcess * p.utilisation))
		p.consumers = max(int(byCores), int(byRate), 1)
	}
	if p.senders == 0 {
		p.senders = p.consumers
	}
	p.busyWorkers = p.rate * p.handler.Seconds()
	if p.workers == 0 {
		p.workers = max(int(math.Ceil(p.busyWorkers/float64(p.consumers)/p.utilisation)), 1)
	}
	here := p.shards / p.nodes
	p.consumerNode = here*connShard + min(here*connShardAct, connConsumer) + connClient
	p.senderNode = connSends + connClient
	p.connNode = p.consumers*p.consumerNode + p.senders*p.senderNode
	p.connAll = p.connNode * p.nodes
}

// ofFailover is what waits while a primary is replaced.
func (p *plan) ofFailover() {
	p.gap = p.nodeTimeout + gapFrozen - gapNodeTimeout
	p.waiting = p.rate / float64(p.nodes) * p.gap.Seconds()
	if p.cpuNode < 1 {
		// The node's spare time goes into handling what has waited.
		p.catchUp = time.Duration(p.waiting * p.cpuHandle / (1 - p.cpuNode) * float64(time.Microsecond))
	}
}

// judge says what is not enough.
func (p *plan) judge() {
	add := func(bad bool, format string, args ...any) {
		if bad {
			p.missing = append(p.missing, fmt.Sprintf(format, args...))
		}
	}
	add(p.nodes < p.byMemory, "memory: %d nodes are needed, and there are %d", p.byMemory, p.nodes)
	add(p.nodes < p.byCPU, "CPU: %d nodes are needed, and there are %d", p.byCPU, p.nodes)
	add(p.shards < p.largest, "shards: no multiple of %d nodes up to %d is at least %d", p.nodes, maxShards, p.largest)
	add(p.connNode > maxclientsOf, "connections: %d to a node, and maxclients is %d by default", p.connNode, maxclientsOf)
	add(p.clientHandle/float64(p.consumers) > float64(p.cores)*p.utilisation,
		"consumers: %.2f cores each are busy, and have %d",
		p.clientHandle/float64(p.consumers), p.cores)
	add(p.rate/float64(p.consumers) > rateOfProcess*p.utilisation,
		"consumers: %.0f messages/s each, and %d is the most that was measured",
		p.rate/float64(p.consumers), rateOfProcess)
	add(p.busyWorkers > float64(p.consumers*p.workers), "workers: %.0f are busy, and there are %d", p.busyWorkers,
		p.consumers*p.workers)
	add(p.replicas == 0,
		"replicas: if a node is lost, so are its messages; and the other nodes go on only with "+
			"cluster-require-full-coverage no")
	add(p.replicas > 0 &&
		p.gap > lease, "failover: the gap is longer than a lease (%v), so contexts of running handlers end", lease)
	add(p.replicas > 0 && p.nodes < 3, "failover: fewer than 3 primaries elect no replica")
}
