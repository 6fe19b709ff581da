package queuetest

import (
	"fmt"
	"strconv"
	"time"
)

// LostText is what fetch keeps of a delivery whose lease ran out.
const LostText = "its lease ran out: its consumer died or was cut off"

// UnreceivedText is what fetch keeps of a delivery that did not come through.
const UnreceivedText = "it did not come through: the line is too slow for it, or a limit of the server cuts it off"

// TagOf names delivery n of a message: the id itself for the first, <n>:<id> from the second on.
func TagOf(id string, n int) string {
	if n == 1 {
		return id
	}
	return strconv.Itoa(n) + ":" + id
}

// Clock is where the clock of an embedded server begins, in unix us: even, and before the real one.
const Clock = int64(1_717_200_000_000_000)

// IDHead is how each id that IDOf makes begins.
const IDHead = "0190f3a0-0000-7000-8000-"

// IDOf is the id of a message with a short name.
func IDOf(name string) string { return IDHead + fmt.Sprintf("%012x", name) }

// IDIn is the id in a tag.
func IDIn(tag string) string { return tag[len(tag)-len(IDHead)-12:] }

func Acks(string) bool { return true }

// Hasty is the shortest time that attempts have.
const Hasty = 50 * time.Millisecond

// Failure is the error of a call, whatever else it returns.
func Failure[T any](_ T, err error) error { return err }

// PanicText runs f and returns what it panicked with.
func PanicText(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text, _ = p.(string)
		}
	}()
	f()
	return ""
}
