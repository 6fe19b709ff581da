package main

import "github.com/go-delayqueue/delayqueue/internal/check"

// advice is what a kind of finding means, and what to do about it.
type advice struct {
	means, do string
	repair    bool // --repair mends it
}

const (
	byRepair  = "--repair mends it"
	otherHand = "Find out which program writes under this prefix and name, because this library never does"
)

var advices = map[check.Kind]advice{
	schedulesNotRun: {"No process runs the schedules of this queue, so none of their messages is sent.",
		"Start a replica of the service that calls Run of the schedule package, or see why those that ran have ended.",
		false},
	scheduleStuck: {"Nothing is sent for the schedule at its instants.",
		"delayqueue schedule show says more of it. One that cannot be read is mended by the program that set it, or set " +
			"again.", false},
	check.UnknownLayout: {
		"A newer version of the library writes this queue, and what is there that this program does not know looks wrong " +
			"to it. Nothing else that is said here need be a fault.",
		"Upgrade this program: this one repairs nothing here. If nothing newer runs, another program wrote the field: " +
			"HDEL it.", false},
	check.WrongType: {
		"The key holds another type of value, so every call of the queue fails, and nothing else could be checked.",
		otherHand + "; rename or delete the key, or use another prefix.", false},
	check.Expires: {"Somebody set a time to live: Redis will delete the key and all that is in it.",
		"PERSIST the key at once. " + otherHand + ".", false},
	check.StrayKey: {
		"A key under the name of the queue that is none of its own. It does no harm, but deleting the queue leaves it " +
			"behind.",
		otherHand + "; delete it if nobody needs it.", false},
	check.BadTag: {"An entry that names no delivery. It is handed to nobody who could settle it.",
		otherHand + ". " + byRepair + ": it removes the entry, unless its end is the id of a message, or a lease lists it.",
		true},
	check.BadScore: {
		"The instant of the entry is none that the library writes, so the message comes too early, too late or never.",
		"delayqueue reschedule gives a message that is pending or waits for a retry a new instant; for others, remove the " +
			"entry.", false},
	check.NoEnvelope: {
		"The payload is gone: evicted, or deleted by somebody. The message is lost; a consumer that comes upon the entry " +
			"drops it.",
		"Use maxmemory-policy noeviction. " + byRepair + ": it drops the entry.", true},
	check.WrongPlace: {
		"The message is in a structure in which its delivery number has no business. It is handed out all the same.",
		otherHand + "; delayqueue cancel takes the message out, then send it anew.", false},
	check.BadEnvelope: {
		"The message cannot be read: a newer version of the library wrote it, or another program. Consumers put it off.",
		"Upgrade the consumers; if none can read it, delayqueue cancel takes it out.", false},
	check.NoPlace: {
		"A message that was accepted and never settled is in no structure, so it would never be handed out: somebody " +
			"deleted or evicted a structure.",
		byRepair + ": it brings the message back to retry, under a new delivery number, due when it was due or now (it " +
			"may have been handled, as after a loss); " +
			"to garbage if another live message has its key. One that cannot be read is left alone.", true},
	check.ManyPlaces: {"The message is in several structures, so it may be handled more than once at a time.",
		otherHand + "; delayqueue cancel takes it out of each place, one call for each. " + byRepair +
			" where an entry is of an earlier " +
			"delivery than the record names: it drops that entry.", true},
	check.DueDiffers: {"The message will be handed out at another time than its envelope says.",
		"delayqueue reschedule sets both.", false},
	check.BadRecord: {"What is known of the failures of the message cannot be read; it counts as none.",
		otherHand + "; its next failure or loss writes the record anew. " + byRepair +
			" if it begins with the number of a later delivery.", true},
	check.StrayRecord: {"A record of failures whose message is gone. It takes up memory.",
		byRepair + ": it deletes the record.", true},
	check.StrayResult: {"A result whose message is gone, or was not acked. It takes up memory.",
		byRepair + ": it deletes the result.", true},
	check.StrayPart: {
		"A part of a group, or the number of acks that a countdown lacks, whose message is gone or has no such part or " +
			"countdown. It takes up memory.",
		byRepair + ": it deletes the field, if its message is gone.", true},
	check.StrayLeft: {
		"The list of groups that left a message key names another message than a live group that did. Calls by key pass " +
			"over it.",
		byRepair + ": it takes that out of the list.", true},
	check.NotListed: {
		"A group has left its message key, and the key does not list it: calls by key do not find it. It is handled as " +
			"any other.",
		byRepair + ": it lists the group.", true},
	check.LostLease: {
		"What a lease handed out is not known, or how much of it its holder still has: a field of lease was deleted, or " +
			"another program wrote into unack.",
		byRepair + ": it drops the lease if it has no list. What it held is in no structure then, and is brought back.",
		true},
	check.StrayLease: {"Fields of a lease that is over, or another program's. They take up memory, and hold no message.",
		byRepair + ": it deletes them, if no lease has their name.", true},
	check.StrayLane: {
		"A member of lanes that stands for no message, for another lane, or for a turn that is not its own. It may keep a " +
			"turn, and the messages behind it wait.",
		byRepair + ": it deletes the member and gives the turn on. Consumers end turns of messages that are gone every " +
			"ten minutes.", true},
	check.LostLane: {
		"A message is not where its lane says: another program deleted its member of lanes. It is handled beside others " +
			"of its lane, or, if it is in waiting, never.",
		byRepair + ": it puts the message into its lane, at its instant. One that is being handled, or is ready, goes on.",
		true},
	check.WrongLane: {
		"A lane has more turns than its width says, or a turn that a message which waits should have: more messages are " +
			"handled at a time than may be, or messages wait for nothing.",
		byRepair + ": it gives turns that are free, and takes back those that are too many from messages that have not " +
			"begun.", true},
	check.WrongCount: {
		"A lease and its list differ on how much of it was not settled. If the count is too low, the lease ends too " +
			"early, and the rest of its messages is in no structure.",
		otherHand + ". The lease goes at its end; if messages are in no structure then, delayqueue doctor finds them.",
		false},
	check.LostParts: {
		"Parts of a group are gone or others than they should be, or it is not known how many acks a countdown lacks: " +
			"evicted, or deleted by somebody. Consumers take the group for broken: it goes to garbage. For the countdown no " +
			"ack counts any more, and its message comes at its own instant.",
		"Use maxmemory-policy noeviction. " + otherHand +
			". Nobody knows the number: delayqueue send with --key-policy replace and " +
			"--countdown sets another one, and delayqueue run makes the message due now.", false},
	check.NoRecord: {
		"What is known of the failures of the message is gone: it will be delivered more often than its retries allow.",
		"Nothing: its next failure or loss writes the record anew.", false},
	check.WrongRecord: {
		"Record and entry of the message differ on its delivery number, so get, cancel and reschedule may not find it. If " +
			"the record names a later delivery, nobody can settle this one, and a message with a lane keeps its turn.",
		byRepair + ": it sets such a record to the delivery that waits. Other differences end with the next delivery.", true},
	check.NoKey: {"The message key of a live message is not held by it: another message with this key would be accepted.",
		"Nothing, if no other is sent before it is settled; else delayqueue cancel takes out the one that is too many.",
		false},
	check.StrayKeyEntry: {"A message key is taken by no live message that has it: sends with it may be refused.",
		byRepair + ": it frees the key.", true},
	check.BadState: {
		"A field of what scripts remember is none that this version writes: a newer version runs, or another program " +
			"writes there.",
		"Upgrade this program, or HDEL the field if nothing newer runs.", false},
	check.BadSequence: {
		"How far a sequence of numbered messages has come cannot be read. It counts as none: the next message is stored, " +
			"whatever its number.",
		otherHand + ".", false},
	check.StrayAlarm: {
		"The alarm that wakes idle consumers is not as the queue set it. They look all the same, every half minute at the " +
			"latest.",
		byRepair + ": it sets the alarm as the queue did, and removes others.", true},
	check.LateAlarm: {
		"Nobody would be woken in time for the next message. Consumers look all the same, every half minute at the latest, " +
			"and the first look sets the alarm.",
		"Nothing, if consumers are alive (delayqueue consumers).", false},
	check.BadConsumer: {"An entry of a consumer cannot be read. It goes by itself, or a newer version wrote it.",
		"Nothing.", false},
	noConsumer: {"Messages are due and nobody is alive to handle them, so they wait.",
		"Start a consumer, or see why those that ran have ended; delayqueue consumers lists those that are alive.", false},
	deadLease: {
		"A consumer died with these messages in its hands. They are handed out again by the next fetch of any consumer, " +
			"and none fetches.",
		"Start a consumer; if one is alive, its log says why it does not fetch.", false},
	throttled: {
		"A handler says Throttle for all consumers, an hour at most each time, and nothing is handed out meanwhile. It " +
			"has been said again and again, or for much.",
		"See why handlers say it (their logs name the error); delayqueue limits lift ends it at once.", false},
	longLane: {"A message is due, and waits for others of its lane, which do not go on (--lane-after), or for an hour.",
		"delayqueue lanes with the name of the lane says which message has the turn, and what that waits for; delayqueue " +
			"lanes skip lets the next one pass.", false},
	hanging: {"Handlers have run for longer than --hung-after, and each of them keeps a worker.",
		"delayqueue consumers says which messages they have; WithMaxConsumeDuration bounds handlers. If such handlers are " +
			"usual here, raise --hung-after.", false},
	unwell: {"What the server says of itself endangers messages, or keeps them from being sent or handled.",
		"See to the server: the finding says what is wrong with it, and what to set.", false},
	check.Unbalanced: {
		"Messages were deleted or made by something else than this library, or the server lost them: evicted, flushed, " +
			"another program, an older version of this library, or a defect. If messages vanished, they are lost.",
		"Find out what it was, from the server's log and its maxmemory-policy: it may go on. " + byRepair +
			": the books go on from what is there, and the journal says who accepted how many.", true},
	loss: {
		"Consumers found messages gone that nobody took out: Redis came back empty or with older data, was flushed, " +
			"evicts, or another program deletes, perhaps by a DeleteQueue that was forced while consumers ran.",
		"Send again what was lost, if its senders know it. Use maxmemory-policy noeviction, and appendfsync or " +
			"WithReplicaAck. " + byRepair + ": it accepts the loss, and the journal says who did.", true},
	check.ManyShards: {
		"A message or a message key is in two shards of the queue, so the message may be handled more than once: another " +
			"program stored it, or shards were copied.",
		"delayqueue get says what each is; delayqueue cancel takes the message out of the shard that its id says.", false},
	check.WrongShard: {
		"A message or a name is in another shard than its id or its hash says, so calls by the id or the name do not find " +
			"it. Consumers hand the message out all the same.",
		"Nothing for messages: they go as they are handled. Senders of all versions must know of shards (WithShards).",
		false},
	check.BadJournal: {"An entry of the journal is none that this version writes. delayqueue journal passes over it.",
		"Nothing: it goes with the oldest entries.", false},
	check.BadHistory: {"A counter is none that this version writes.",
		"HDEL the field if nothing newer runs.", false},
}
