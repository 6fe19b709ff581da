package ops

import (
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/produce"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestACLPatterns: a name that holds the characters of patterns is escaped as Queues does it.
func TestACLPatterns(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	name := `a*b?c[d]\e`
	line := queuetest.DocumentedUsers(t)["publisher"][0]
	queuetest.SetUser(t, admin, strings.ReplaceAll(line, "orders", globEscape(name)))
	queuetest.SetUser(t, admin, "ACL SETUSER publisher resetchannels &{dq:"+globEscape(name)+"}:events +publish")
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "publisher", Password: "secret"})
	defer cli.Close()
	for queue, allowed := range map[string]bool{name: true, `axxb?c[d]\e`: false, `a*b?cd\e`: false, `a*bxc[d]\e`: false} {
		_, err := delayqueue.NewPublisher(queue, cli).Send(queuetest.CtxB, "a")
		if (err == nil) != allowed {
			t.Errorf("queue %s: allowed %v, want %v: %v", queue, err == nil, allowed, err)
		}
		err = script.NewStore(cli, "dq", queue).Publish(produce.NoContextTimeout, nil)
		if (err == nil) != allowed {
			t.Errorf("events of queue %s: allowed %v, want %v: %v", queue, err == nil, allowed, err)
		}
	}
}
