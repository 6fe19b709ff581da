package link

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file says which clients cannot be used. The library calls a *redis.Client or a *redis.ClusterClient over
// connections of its own, with that client's options and without its hooks. So a client whose hooks are its server
// must not get through: the library would dial the address in its options, where a real Redis may be.

// CheckClient panics for call if a client cannot be used.
func CheckClient(call, name string, cli redis.UniversalClient) {
	v := reflect.ValueOf(cli)
	switch {
	case cli == nil || v.Kind() == reflect.Pointer && v.IsNil():
		panic(fmt.Sprintf("delayqueue: %s(%q): the Redis client is nil: make one with redis.NewClient", call, name))
	case hasRing(v, 0):
		panic(fmt.Sprintf("delayqueue: %s(%q): %v", call, name, ErrRing))
	case pretends(cli):
		panic(fmt.Sprintf("delayqueue: %s(%q): %v", call, name, errPretends))
	}
}

var (
	// ErrRing is why a *redis.Ring is refused.
	ErrRing = errors.New("a redis.Ring moves keys to another server while one is away, " +
		"and messages that were accepted there are lost when it is back: use one server, Sentinel or a Cluster")
	// errPretends is why a mock is refused.
	errPretends = errors.New(
		"a hook of this client answers in place of a server, as redismock does, and the library would dial " +
			"the server in its options, for it makes connections of its own: for tests there is the package delayqueuetest")
)

// maxWrappers is how many types around a client are looked into.
const maxWrappers = 8

// hasRing reports whether a client is a *redis.Ring, or embeds one.
func hasRing(v reflect.Value, depth int) bool {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		if v.Type() == reflect.TypeFor[*redis.Ring]() {
			return true
		}
		v = v.Elem() // of nil, no value
	}
	if v.Kind() != reflect.Struct || depth == maxWrappers {
		return false
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Anonymous && hasRing(v.Field(i), depth+1) {
			return true
		}
	}
	return false
}

// probeWord is in the command that pretends makes, and so in the error of a mock that did not expect it.
const probeWord = "delayqueue-probe"

// pretends reports whether hooks of a client answer a command that its server never sees. It reaches no server. A
// hook that keeps a command for another reason, such as a circuit breaker, answers with an error of its own.
func pretends(cli redis.UniversalClient) (does bool) {
	defer func() { _ = recover() }() // a hook is the user's code
	probe := redis.NewStringCmd(context.Background(), "ping", probeWord)
	var err error
	switch cli := cli.(type) {
	case *redis.Client:
		conn := cli.Conn() // with a copy of the hooks, and without a connection until it needs one
		defer conn.Close()
		var end endHook
		conn.AddHook(&end)
		if err = conn.Process(context.Background(), probe); end.reached {
			return false
		}
	case *redis.ClusterClient: // there are no copies of it
		probe.SetStepCount(1) // else it asks a node for COMMAND, which may be one that does not answer
		err = cli.Process(canceled, probe)
	default:
		return false // it is used as it is
	}
	return err == nil || errors.Is(err, redis.Nil) || strings.Contains(err.Error(), probeWord)
}

// An endHook is behind all other hooks, in place of the server.
type endHook struct {
	noHook
	reached bool
}

func (h *endHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { h.reached = true; return nil }
}

// A noHook changes nothing.
type noHook struct{}

func (noHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (noHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (noHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
