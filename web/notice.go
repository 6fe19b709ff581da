package web

import (
	"maps"
	"net/url"
	"regexp"
	"strconv"
)

// What has just been done is said once, on the page that follows. Its address holds a word and numbers, from which
// the sentence is made here: whoever makes up an address makes up no sentence.

// notice is the query of a page that says that something was done, to so many.
func notice(query url.Values, code string, done int64) url.Values {
	query.Set("done", code)
	query.Set("n", strconv.FormatInt(done, 10))
	return query
}

// forget is a query without that, and without how far something was counted.
func forget(query url.Values) url.Values {
	rest := maps.Clone(query)
	for _, name := range []string{"done", "n", "passed", "why", "away", "next", "s", "looked"} {
		rest.Del(name)
	}
	return rest
}

// away are numbers of shards.
var away = regexp.MustCompile(`^[0-9]{1,2}(, [0-9]{1,2})*$`)

// said is the sentence of the query, "" if there is none.
func (r *request) said() string {
	said := r.did()
	if shards := r.Away(); said != "" && shards != "" {
		said += ". " + r.lang.say("But not in the shards with these numbers, which do not answer: %s. Do it again when they "+
			"are back", shards)
	}
	return said
}

// Away is the numbers of the shards in which something was not done; "": it was done in all.
func (r *request) Away() string { return away.FindString(r.Arg("away")) }

// did says what was done.
func (r *request) did() string {
	l := r.lang
	switch r.Arg("done") {
	case "":
		return ""
	case "pause":
		return l.say("The queue is paused")
	case "resume":
		return l.say("The queue goes on")
	case "accepted":
		return l.say("It is accepted, and stands in the journal")
	case "set":
		return l.say("The limits are set. The journal says which were set before")
	case "clear":
		return l.say("The limits are those that consumers ask for")
	case "lift":
		return l.say("The throttle is lifted: the queue goes on as far as its limits allow")
	case "lifted":
		return l.say("The queue was not throttled any more")
	}
	for _, one := range scheduleVerbs {
		if r.Arg("done") == "schedule "+one.Name {
			return l.say(one.Did)
		}
	}
	v, n := verbNamed(r.Arg("done")), numberOf(r.Arg("n"))
	if v == nil || !v.Changes() || n < 0 {
		return ""
	}
	said := l.say(v.Did, l.number(n))
	if passed := numberOf(r.Arg("passed")); passed > 0 {
		said += "; " + l.say("%s passed over: %s", l.number(passed), l.whyPassed(r.Arg("why")))
	}
	return said
}

// numberOf is -1 for what is none.
func numberOf(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// whyPassed is why something was not done to the first message that was passed over.
func (l *language) whyPassed(code string) string {
	switch code {
	case "gone":
		return l.say("it is not there any more")
	case "state":
		return l.say("it is in a state in which this cannot be done")
	case "key":
		return l.say("another message has its key now")
	case "expired":
		return l.say("it is past its deadline by then")
	}
	return l.say("the log of the service says why")
}
