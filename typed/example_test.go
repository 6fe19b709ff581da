package typed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/typed"
	"github.com/redis/go-redis/v9"
)

// embedded is a Redis inside this program, for an example that ends.
func embedded() (redis.UniversalClient, func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	cli := redis.NewClient(&redis.Options{Addr: server.Addr()})
	return cli, func() {
		_ = cli.Close()
		server.Close()
	}
}

type Comment struct{ Author, Text string }

// A kind is a name and a type, said once for those who send and those who handle.
func ExampleKind() {
	redisCli, end := embedded()
	defer end()

	var comment = typed.Kind[Comment]("comment")

	mux := typed.NewMux()
	queue := delayqueue.NewQueue("comments", redisCli, nil).WithHandler(mux.Handler)
	typed.Handle(mux, comment, func(_ context.Context, c Comment, msg *delayqueue.Message) error {
		fmt.Println(c.Author, "said", c.Text)
		fmt.Println(msg.Headers[typed.Header], msg.Payload)
		queue.StopConsume()
		return nil
	})
	if _, err := comment.Send(context.Background(), queue, Comment{"Ann", "yes"},
		delayqueue.WithDelay(20*time.Millisecond)); err != nil {
		panic(err)
	}
	<-queue.StartConsume()
	// Output:
	// Ann said yes
	// comment {"Author":"Ann","Text":"yes"}
}

// Another codec is two functions, such as Marshal and Unmarshal of most packages that have them.
func ExampleKindOf_WithCodec() {
	indented := func(v any) ([]byte, error) { return json.MarshalIndent(v, "", " ") }
	comment := typed.Kind[Comment]("comment").WithCodec(indented, json.Unmarshal)
	out, err := comment.Outgoing(Comment{"Ann", "yes"})
	fmt.Println(out.Payload, err)
	// Output:
	// {
	//  "Author": "Ann",
	//  "Text": "yes"
	// } <nil>
}

// Messages of any kinds in one batch.
func ExampleKindOf_Outgoing() {
	redisCli, end := embedded()
	defer end()

	comment, remind := typed.Kind[Comment]("comment"), typed.Kind[string]("remind")
	a, errA := comment.Outgoing(Comment{"Ann", "yes"})
	b, errB := remind.Outgoing("pay the rent", delayqueue.WithDelay(time.Hour))
	if err := errors.Join(errA, errB); err != nil {
		panic(err)
	}
	results, err := delayqueue.NewPublisher("mixed", redisCli).SendBatch(context.Background(), []delayqueue.Outgoing{a, b})
	fmt.Println(len(results), err)
	// Output: 2 <nil>
}

// A handler answers, and who called gets what it returned.
func ExampleHandleCall() {
	redisCli, end := embedded()
	defer end()

	var length = typed.CallKind[string, int]("length")

	mux := typed.NewMux()
	typed.HandleCall(mux, length, func(_ context.Context, text string, _ *delayqueue.Message) (int, error) {
		return len(text), nil
	})
	queue := delayqueue.NewQueue("calls", redisCli, nil).WithHandler(mux.Handler)
	done := queue.StartConsume()

	n, err := length.Call(context.Background(), queue, "delay")
	fmt.Println(n, err)
	queue.StopConsume()
	<-done
	// Output: 5 <nil>
}

// Comments for one reader are one message, and its handler gets all of them.
func ExampleHandleGroup() {
	redisCli, end := embedded()
	defer end()

	var comment = typed.Kind[Comment]("comment")

	mux := typed.NewMux()
	queue := delayqueue.NewQueue("digests", redisCli, nil).WithHandler(mux.Handler)
	typed.HandleGroup(mux, comment, func(_ context.Context, all []Comment, msg *delayqueue.Message) error {
		var lines []string
		for _, c := range all {
			lines = append(lines, c.Author+": "+c.Text)
		}
		fmt.Println("to", msg.Key, strings.Join(lines, "; "))
		queue.StopConsume()
		return nil
	})
	for _, c := range []Comment{{"Ann", "yes"}, {"Bob", "no"}} {
		_, err := comment.Send(context.Background(), queue, c, delayqueue.WithKey("reader-42", delayqueue.Append),
			delayqueue.WithMaxParts(2), delayqueue.WithDelay(time.Minute))
		if err != nil {
			panic(err)
		}
	}
	<-queue.StartConsume()
	// Output: to reader-42 Ann: yes; Bob: no
}
