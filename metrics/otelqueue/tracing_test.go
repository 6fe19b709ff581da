package otelqueue

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// traced is what a handler was called in.
type traced struct {
	span   trace.SpanContext
	tenant string
}

// handle sends a message from within a producer's span, if there is to be one, and waits until the spans of its
// deliveries have ended.
func handle(t *testing.T, base context.Context, producer bool, handler func(*delayqueue.Message) error,
	deliveries int) (sent trace.SpanContext, spans []sdktrace.ReadOnlySpan, seen []traced) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	t.Cleanup(func() {
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	tracing := NewTracing(Config{
		TracerProvider: provider,
		Propagator:     propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
	})
	calls := make(chan traced, deliveries)
	q := delayqueue.NewQueue("orders", redistest.Start(t).Client(t), nil).WithBaseContext(base).WithNackRedeliveryDelay(0).
		WithDefaultRetryCount(deliveries - 1).
		WithMiddleware(tracing.Middleware("orders")).
		WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			calls <- traced{trace.SpanContextFromContext(ctx), baggage.FromContext(ctx).Member("tenant").Value()}
			return handler(msg)
		})
	ctx := t.Context()
	if producer {
		tenant, err := baggage.NewMember("tenant", "7")
		if err != nil {
			t.Fatal(err)
		}
		bag, err := baggage.New(tenant)
		if err != nil {
			t.Fatal(err)
		}
		var span trace.Span
		ctx, span = provider.Tracer("test").Start(baggage.ContextWithBaggage(ctx, bag), "send orders",
			trace.WithSpanKind(trace.SpanKindProducer))
		defer span.End()
		sent = span.SpanContext()
	}
	if _, err := q.Send(ctx, "x", append(tracing.Inject(ctx), delayqueue.WithHeader("mine", "kept"))...); err != nil {
		t.Fatal(err)
	}
	done := q.StartConsume()
	for range deliveries {
		seen = append(seen, testkit.Receive(t, "a delivery", calls))
	}
	q.StopConsume()
	<-done
	if spans = recorder.Ended(); len(spans) != deliveries {
		t.Fatalf("%d spans, want %d", len(spans), deliveries)
	}
	return sent, spans, seen
}

func TestSpanIsLinkedToTheSenders(t *testing.T) {
	t.Parallel()
	var id string
	var deliveries []string
	sent, spans, seen := handle(t, context.Background(), true, func(msg *delayqueue.Message) error {
		id, deliveries = msg.ID, append(deliveries, strconv.Itoa(msg.Delivery))
		if msg.Headers["mine"] != "kept" {
			t.Errorf("headers %v", msg.Headers)
		}
		if msg.Failures == 0 {
			return errors.New("not yet")
		}
		return nil
	}, 2)
	for i, span := range spans {
		if span.Name() != "process orders" || span.SpanKind() != trace.SpanKindConsumer {
			t.Errorf("span %q of kind %v", span.Name(), span.SpanKind())
		}
		if links := span.Links(); len(links) != 1 || links[0].SpanContext.TraceID() != sent.TraceID() ||
			links[0].SpanContext.SpanID() != sent.SpanID() {
			t.Errorf("links %v, want one to %v", links, sent)
		}
		if span.Parent().IsValid() || span.SpanContext().TraceID() == sent.TraceID() {
			t.Errorf("delivery %d is in the trace of its sender", i+1)
		}
		if seen[i].span.SpanID() != span.SpanContext().SpanID() || seen[i].tenant != "7" {
			t.Errorf("the handler saw %+v", seen[i])
		}
		outcome := []string{"nack", "ack"}[i]
		want := map[attribute.Key]string{
			"messaging.system": "delayqueue", "messaging.destination.name": "orders", "messaging.operation.name": "process",
			"messaging.operation.type": "process", "messaging.message.id": id, "delayqueue.delivery": deliveries[i],
			"delayqueue.outcome": outcome,
		}
		if outcome == "nack" {
			want["error.type"] = "*errors.errorString"
		}
		got := map[attribute.Key]string{}
		for _, kv := range span.Attributes() {
			got[kv.Key] = kv.Value.String()
		}
		if len(got) != len(want) {
			t.Errorf("attributes %v", got)
		}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("attribute %s = %q, want %q", k, got[k], v)
			}
		}
		if status := span.Status(); (status.Code == codes.Error) != (outcome == "nack") ||
			(outcome == "nack" && status.Description != "not yet") {
			t.Errorf("delivery %d: status %v", i+1, status)
		}
	}
}

// A message that was sent outside of any span is handled in one all the same, whose parent is the base context's.
func TestSpanWithoutSender(t *testing.T) {
	t.Parallel()
	ambient := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
		TraceFlags: trace.FlagsSampled})
	_, spans, _ := handle(t, trace.ContextWithSpanContext(context.Background(), ambient), false,
		func(*delayqueue.Message) error { return delayqueue.Snooze(time.Hour) }, 1)
	if links := spans[0].Links(); len(links) != 0 {
		t.Errorf("links %v", links)
	}
	if spans[0].Parent().SpanID() != ambient.SpanID() || spans[0].Status().Code != codes.Unset {
		t.Errorf("parent %v, status %v", spans[0].Parent(), spans[0].Status())
	}
}

func TestSpanOfAPanic(t *testing.T) {
	t.Parallel()
	_, spans, _ := handle(t, context.Background(), true, func(*delayqueue.Message) error { panic("no") }, 1)
	if status := spans[0].Status(); status.Code != codes.Error || status.Description != delayqueue.ErrPanicked.Error() {
		t.Errorf("status %v", status)
	}
}

// An error whose text is no UTF-8, or that has none, does not make an exporter refuse the whole batch.
func TestSpanOfAnErrorThatIsNoText(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{"no \uFFFD": errors.New("no \xff"),
		"otelqueue.mute, whose Error method panicked": mute{}} {
		_, spans, _ := handle(t, context.Background(), true, func(*delayqueue.Message) error { return err }, 1)
		if status := spans[0].Status(); status.Code != codes.Error || status.Description != want {
			t.Errorf("status %v, want %q", status, want)
		}
	}
}

// mute is an error that cannot say what it is.
type mute struct{}

func (mute) Error() string { panic("no words") }

func TestInjectWithoutSpan(t *testing.T) {
	if opts := NewTracing(Config{Propagator: propagation.TraceContext{}}).Inject(context.Background()); len(opts) != 0 {
		t.Errorf("%d options", len(opts))
	}
}
