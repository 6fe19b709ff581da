package delayqueue

import "fmt"

// A Conflict says what a send does if another message has its key (WithKey).
type Conflict int

// What a send can do. While a handler has the other message, Replace and Reschedule leave that alone: the new message is
// stored beside it and takes the key over, so the last change is not lost, and no handler is cut off. The older one, if it
// comes back because it failed, has no key any more.
const (
	// Refuse: ErrDuplicateKey.
	Refuse Conflict = iota
	// Keep stores nothing. The other message is what MessageInfo names, with Existed set.
	Keep
	// Replace makes the other message this one: payload, headers, options, and when it is due if this send says so (a
	// delay or a schedule; SendDelayMsg and SendScheduleMsg always do). It keeps its id, and its place if it is due
	// already and is to be due now; its failures are forgotten. MessageInfo names it, with Existed set.
	Replace
	// Reschedule makes the other message due when this one would be, and changes nothing else of it. MessageInfo names
	// it, with Existed set.
	Reschedule
)

var conflictNames = [...]string{"Refuse", "Keep", "Replace", "Reschedule"}

// conflictWords are what put calls them.
var conflictWords = [...]any{Refuse: "refuse", Keep: "keep", Replace: "replace", Reschedule: "reschedule"}

func (c Conflict) String() string {
	if c < 0 || int(c) >= len(conflictNames) {
		return fmt.Sprintf("Conflict(%d)", int(c))
	}
	return conflictNames[c]
}

// oneConflict is what one send is to do.
func oneConflict(option string, on []Conflict) (Conflict, error) {
	if len(on) == 0 {
		return Refuse, nil
	}
	if len(on) > 1 {
		return Refuse, fmt.Errorf("%w: %s: %v and %v: a message has one of them", ErrBadOption, option, on[0], on[1])
	}
	if on[0] < 0 || int(on[0]) >= len(conflictNames) {
		return Refuse, fmt.Errorf("%w: %s: %v is none of Refuse, Keep, Replace and Reschedule", ErrBadOption, option, on[0])
	}
	return on[0], nil
}
