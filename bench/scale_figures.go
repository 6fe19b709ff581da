package main

import "time"

// The figures by which runScale computes. Each is the median in docs/benchmarks.md that measuredFigures names, unless
// its comment names another page. TestScaleFigures fails if one is no longer near it.
const (
	cpuSendBatches   = 6.10 // Redis CPU, us a message
	cpuSendSingly    = 7.76
	cpuSendSoon      = 5.86 // with 5 million pending, all due at about the same place
	cpuSendSpread    = 16.2 // with 5 million pending, due at random instants
	cpuDrain         = 3.42 // of a backlog, in large fetches
	cpuDrainCold     = 4.89 // of a million messages that Redis no longer has in its processor's caches
	cpuLive          = 8.41 // sent singly by 64 goroutines, and handled as they come
	clientSendBatch  = 1.89 // client CPU, us a message, the bench included
	clientSendSingly = 8.63
	clientLive       = 12.8
	rateOfProcess    = 207_270 // messages/s that one consumer process has handled

	bytesMessage = 362 // used_memory of a pending message with payloadSize bytes
	wireSend     = 156 // bytes of a message from the sender to Redis
	wireHandle   = 167 // bytes of a message from Redis to the consumer
	wireReplica  = 238 // bytes of a send from a primary to each replica
	wireSettled  = 83.3

	// What each further byte of a payload costs, in us: the steeper of two slopes of the table "Larger payloads".
	cpuSendByte      = 0.0051
	cpuHandleByte    = 0.0038
	clientSendByte   = 0.0023
	clientHandleByte = 0.0020

	// An envelope of a 100-byte payload has 121 bytes (docs/benchmarks.md, "What bounds the speed").
	envelopeBytes = 21
)

// Connections of a process to one server, of docs/servers.md, "Connections" and "In a Cluster".
const (
	connSends    = 64     // at most
	connShardAct = 3      // consumers, of each shard: to fetch, to settle and to renew leases
	connConsumer = 64     // consumers, at most
	connShard    = 1      // to wait for wake-ups, of each shard
	connClient   = 1      // the client's own, which asks who holds which slot
	maxclientsOf = 10_000 // Redis's default
)

// Of a Cluster's failover.
const (
	// The longest gap when a primary froze, with a cluster-node-timeout of 1 s (docs/reliability.md, "Faults").
	gapFrozen      = 6920 * time.Millisecond
	gapNodeTimeout = time.Second
	lease          = 10 * time.Second // README.md, "What you can count on"
)

// maxShards is the most that WithShards takes.
const maxShards = 64

// A measuredFigure says where a figure stands in docs/benchmarks.md.
type measuredFigure struct {
	what             string
	value            float64
	table, row, head string // head: of the column
}

const (
	tableThroughput = "Throughput, and cost of a message"
	tableBacklog    = "Cost of a message while others are pending"
	tableMass       = "A million messages due in the same second"
	tableMemory     = "Server memory of a pending message with a 100-byte payload"
	tablePayloads   = "Larger payloads"
)

var measuredFigures = []measuredFigure{
	{"Redis CPU us: send, batches", cpuSendBatches, tableThroughput, sendBatch, "Redis CPU us"},
	{"Redis CPU us: send, singly", cpuSendSingly, tableThroughput, send64, "Redis CPU us"},
	{"Redis CPU us: send, due at about the same place", cpuSendSoon, tableBacklog, "send, 5 million pending",
		"Redis CPU us"},
	{"Redis CPU us: send, due at random instants", cpuSendSpread, tableBacklog, "send at random, 5 million pending",
		"Redis CPU us"},
	{"Redis CPU us: drain", cpuDrain, tableThroughput, drain64, "Redis CPU us"},
	{"Redis CPU us: drain, not in the caches", cpuDrainCold, tableMass, massName, "Redis CPU us"},
	{"Redis CPU us: send singly, and handle", cpuLive, tableThroughput, liveAll, "Redis CPU us"},
	{"client CPU us: send, batches", clientSendBatch, tableThroughput, sendBatch, "client CPU us"},
	{"client CPU us: send, singly", clientSendSingly, tableThroughput, send64, "client CPU us"},
	{"client CPU us: send singly, and handle", clientLive, tableThroughput, liveAll, "client CPU us"},
	{"messages/s of a consumer process", rateOfProcess, tableThroughput, drain64, "messages/s"},
	{"bytes of a pending message", bytesMessage, tableMemory, memName, "bytes"},
	{"bytes to Redis: send", wireSend, tablePayloads, "100", "bytes in"},
	{"bytes from Redis: handle", wireHandle, tablePayloads, "100", "bytes out"},
	{"bytes to a replica: send", wireReplica, tablePayloads, "100", "log of send"},
	{"bytes to a replica: handle", wireSettled, tablePayloads, "100", "log of drain"},
}
