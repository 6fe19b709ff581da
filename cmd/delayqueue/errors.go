package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// Exit codes, as the help of the root command says.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNoRedis     = 3
	exitNotFound    = 4
	exitRefused     = 5
	exitUnconfirmed = 6
	exitUnsound     = 7
	exitInterrupted = 130
)

const exitHelp = `Exit codes:
  0    done
  1    failed for another reason
  2    the command line is wrong
  3    Redis cannot be reached, or its address is wrong
  4    there is no such queue, message or key
  5    refused: a message is in the wrong state, its key is taken, its number
       was reached, consumers are alive, or a newer version writes the queue
  6    not confirmed: the answer was no, or there was no terminal and no --yes
  7    doctor found something wrong
  130  interrupted; a command that was cut off says how to do the rest`

// A failure is an error with an exit code of its own. Its text is empty if the command has printed the reason.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// explain is the exit code of an error and the text to print.
func (a *app) explain(err error) (code int, text string) {
	text = strings.ReplaceAll(err.Error(), "delayqueue: ", "") // main prints that in front
	var known *failure
	var netErr net.Error
	var file *fs.PathError // its cause is a net.Error, as every error number of the system is
	switch {
	case errors.As(err, &known):
		return known.code, text
	case a.started && errors.As(err, &file):
		return exitFailed, text
	case !a.started:
		return exitUsage, a.inOwnWords(text) + "\nUsage: " + a.command.UseLine() + "; --help says more."
	case errors.Is(err, context.Canceled) && a.command.Context().Err() != nil:
		return exitInterrupted, "interrupted"
	case errors.Is(err, ops.ErrBulkStopped):
		return exitInterrupted, text
	case errors.Is(err, delayqueue.ErrWrongState), errors.Is(err, delayqueue.ErrDuplicateKey),
		errors.Is(err, delayqueue.ErrSequence),
		errors.Is(err, ops.ErrConsumersAlive), errors.Is(err, ops.ErrNotEmpty), errors.Is(err, delayqueue.ErrExpired),
		errors.Is(err, ops.ErrUnknownLayout):
		return exitRefused, text
	case errors.Is(err, delayqueue.ErrNotFound):
		return exitNotFound, text
	case errors.Is(err, delayqueue.ErrBadOption), errors.Is(err, ops.ErrBadCursor),
		errors.Is(err, delayqueue.ErrPayloadTooLarge):
		return exitUsage, text
	case strings.Contains(text, "CLUSTERDOWN"):
		return exitNoRedis, "a part of the Cluster is down (" + text + ")"
	case strings.Contains(text, "TRYAGAIN"):
		return exitNoRedis, "a part of the Cluster is being moved to another node: try again (" + text + ")"
	case errors.As(err, &netErr), errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, redis.ErrPoolTimeout):
		return exitNoRedis, strings.ReplaceAll(text, context.DeadlineExceeded.Error(), "no answer")
	}
	return exitFailed, text
}

// Errors of the library that reads the command line.
var (
	oneOfFlags = regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`)
	notBoth    = regexp.MustCompile(`^if any flags in the group \[(.*)\] are set none of the others can be; .*$`)
	needsValue = regexp.MustCompile(`^flag needs an argument: .*?(-[^ ]+)$`)
	badValue   = regexp.MustCompile(`(?s)^invalid argument "(.*)" for ".*(--.*)" flag: (.*)$`)
	argCount   = regexp.MustCompile(`^(?:accepts|requires)[a-z ]* (\d+)(?: and (\d+))? arg\(s\)`)
)

// inOwnWords says for a person what is wrong with the command line.
func (a *app) inOwnWords(text string) string {
	flags := func(names, between string) string {
		return "--" + strings.ReplaceAll(names, " ", between+"--")
	}
	if m := oneOfFlags.FindStringSubmatch(text); m != nil {
		return "say " + flags(m[1], " or ")
	}
	if m := notBoth.FindStringSubmatch(text); m != nil {
		return flags(m[1], " and ") + " do not go together"
	}
	if m := needsValue.FindStringSubmatch(text); m != nil {
		return m[1] + " needs a value"
	}
	if m := badValue.FindStringSubmatch(text); m != nil {
		if strings.HasPrefix(m[3], "strconv.") {
			m[3] = fmt.Sprintf("%q is no value for it, or too large", m[1])
		}
		return m[2] + ": " + m[3]
	}
	args, name := a.command.Flags().Args(), strings.TrimPrefix(a.command.CommandPath(), "delayqueue ")
	m := argCount.FindStringSubmatch(text)
	if strings.HasPrefix(text, "unknown command") && !a.command.HasSubCommands() {
		m = []string{"", "0", ""}
	}
	if m == nil {
		return text
	}
	least, _ := strconv.Atoi(m[1]) // digits
	most, _ := strconv.Atoi(cmp.Or(m[2], m[1]))
	switch words := strings.Fields(a.command.Use)[1:]; {
	case len(args) >= least:
		return fmt.Sprintf("%s: %q is one argument too many", name, args[min(most, len(args)-1)])
	case len(args) == 0 && words[0] == "QUEUE":
		return name + ": which queue? delayqueue queues lists them"
	default:
		return fmt.Sprintf("%s: %s is missing", name, strings.Join(words[len(args):], " "))
	}
}

// inPart says whether a call has a result: it has no error, or one that says that some shards do not answer.
func inPart(err error) bool { return err == nil || errors.Is(err, delayqueue.ErrMissingShards) }

// didYouMean is the end of a sentence with the candidate that is a typing error away from text, "" if none is.
func didYouMean(text string, candidates []string) string {
	if len(candidates) == 0 {
		return ""
	}
	distance := func(c string) int { return levenshtein.ComputeDistance(text, c) }
	best := slices.MinFunc(candidates, func(a, b string) int {
		return cmp.Or(cmp.Compare(distance(a), distance(b)), cmp.Compare(a, b))
	})
	if distance(best) > max(2, len(text)/4) {
		return ""
	}
	return `: did you mean "` + best + `"?`
}
