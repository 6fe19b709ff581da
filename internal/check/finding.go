package check

// A Finding is one breach.
type Finding struct {
	Kind      Kind
	Structure string // that it shows in
	Item      string // in it: a tag, an id, a message key, a member or field, a whole key of Redis
	Text      string // the sentence of Breaches
}

// Kind says what sort of breach a finding is.
type Kind string

// The kinds.
const (
	UnknownLayout Kind = "unknown layout"
	WrongType     Kind = "wrong type"   // of a key
	Expires       Kind = "time to live" // of a key
	StrayKey      Kind = "stray key"    // under the queue's base
	BadTag        Kind = "malformed tag"
	BadScore      Kind = "malformed score"
	NoEnvelope    Kind = "no envelope"  // of a tag
	WrongPlace    Kind = "wrong place"  // for that delivery number
	BadEnvelope   Kind = "bad envelope" // or id
	NoPlace       Kind = "no place"     // for an envelope
	ManyPlaces    Kind = "many places"  // for one message
	DueDiffers    Kind = "due differs"  // from the envelope's
	BadRecord     Kind = "malformed record"
	StrayRecord   Kind = "stray record" // of no message
	NoRecord      Kind = "no record"    // of a message that should have one
	WrongRecord   Kind = "wrong record"
	NoKey         Kind = "key not held"    // by the message that has it
	StrayKeyEntry Kind = "stray key entry" // of no live message with that key
	StrayResult   Kind = "stray result"    // of no message that is done
	StrayPart     Kind = "stray part"      // of no group that counts it
	LostParts     Kind = "lost parts"      // of a group
	StrayLeft     Kind = "stray list"      // of groups that left a key
	NotListed     Kind = "unlisted group"  // by the key that it left
	BadState      Kind = "bad state"       // a field, or a result
	StrayAlarm    Kind = "stray alarm"
	LateAlarm     Kind = "late alarm"  // or none
	LostLease     Kind = "lost lease"  // without its list or its count
	StrayLease    Kind = "stray lease" // that is not in unack, or has no name
	WrongCount    Kind = "wrong count" // of what a lease holds
	StrayLane     Kind = "stray lane member"
	LostLane      Kind = "not in its lane" // a message
	WrongLane     Kind = "wrong lane"      // its turns, or their order
	BadSequence   Kind = "bad sequence"    // number
	BadConsumer   Kind = "bad consumer"    // entry
	BadHistory    Kind = "bad history"     // field
	BadJournal    Kind = "bad journal"     // member
	ManyShards    Kind = "many shards"     // for one message or key
	WrongShard    Kind = "wrong shard"     // for an id or a name
	Unbalanced    Kind = "books do not balance"
	Leftover      Kind = "leftover" // in a queue that should be empty
)

func texts(found []Finding) []string {
	var all []string
	for _, f := range found {
		all = append(all, f.Text)
	}
	return all
}
