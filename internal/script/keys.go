package script

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// NameRule says what a queue may be called: what a person can read, copy and type, so that two names that look alike
// are one. One queue over several slots will lie under a name for each part.
const NameRule = "a name is UTF-8, needs at least one character, none of { } and no control characters, begins and " +
	"ends with no blank, and must not end in a slash and digits, which is kept for the parts of a queue"

var partName = regexp.MustCompile(`/[0-9]+$`)

func ValidName(name string) bool {
	return name != "" && !strings.ContainsAny(name, "{}") && !partName.MatchString(name) && Legible(name)
}

// Legible says whether a name has no characters that nobody sees.
func Legible(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl) && strings.TrimSpace(name) == name
}

// keys are the names of a queue's structures. The hash tag keeps them in one slot of a Cluster.
type keys struct {
	msg, Wake, State, Schedules string

	Events string // a channel, which all databases of a server share
	Outbox string // likewise; what comes from another database wakes an outbox once too often

	all []any // in the order of structures
}

// structures are what scripts call a queue's keys (KEYS.pending), in the order in which they take them.
var structures = [...]string{"pending", "ready", "unack", "lease", "retry", "garbage", "msg", "fail", "key", "wake",
	"state", "consumers", "history",
	"sequence", "done", "result", "holds", "parts", "schedules", "journal", "lanes", "waiting"}

func keysOf(prefix, name string, db int) keys {
	base := "{" + prefix + ":" + name + "}:"
	k := keys{msg: base + "msg", Wake: base + "wake", State: base + "state", Schedules: base + "schedules",
		Events: base + "events", Outbox: base + "outbox"}
	if db != 0 {
		k.Events += ":" + strconv.Itoa(db)
	}
	for _, structure := range structures {
		k.all = append(k.all, base+structure)
	}
	return k
}

var ErrUnknownLayout = errors.New("the layout of the queue is unknown to this version of the library")

// CheckLayout refuses every layout but 1.
func CheckLayout(layout string) error {
	if layout == "1" {
		return nil
	}
	if n, err := strconv.Atoi(layout); err != nil || n < 2 {
		return fmt.Errorf(
			"%w: its field layout is %q, which no version writes: if no newer one runs, HDEL the field from its state",
			ErrUnknownLayout, layout)
	}
	return fmt.Errorf("%w: it is %s, and this version knows 1: upgrade this program", ErrUnknownLayout, layout)
}
