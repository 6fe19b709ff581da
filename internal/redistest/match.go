package redistest

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
)

// Script returns a match for a wire's faults: calls of the Lua script whose
// SHA-1 is sha, in hex. EVALSHA (and EVALSHA_RO) matches by the sum it names,
// EVAL (and EVAL_RO) by that of the script it carries.
//
// An EVALSHA matches whether or not the server knows the script. A test that
// does not want to lose a mere NOSCRIPT loads the script first.
func Script(sha string) func(cmd []string) bool {
	return func(cmd []string) bool {
		if len(cmd) < 2 {
			return false
		}
		switch strings.ToUpper(cmd[0]) {
		case "EVALSHA", "EVALSHA_RO":
			return strings.EqualFold(cmd[1], sha)
		case "EVAL", "EVAL_RO":
			sum := sha1.Sum([]byte(cmd[1]))
			return strings.EqualFold(hex.EncodeToString(sum[:]), sha)
		}
		return false
	}
}
