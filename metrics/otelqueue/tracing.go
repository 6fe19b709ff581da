package otelqueue

import (
	"context"
	"fmt"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/metrics/internal/observe"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Tracing carries the sender's trace context to the handler in the headers of the message. It is safe for
// concurrent use.
type Tracing struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
}

// NewTracing makes a Tracing.
func NewTracing(cfg Config) *Tracing {
	t := &Tracing{propagator: cfg.Propagator}
	if t.propagator == nil {
		t.propagator = otel.GetTextMapPropagator()
	}
	provider := cfg.TracerProvider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	t.tracer = provider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	return t
}

// Inject makes the options of a message whose handler is to be linked to the span in ctx: a header for each
// thing that the propagator writes, such as traceparent. There are none if ctx has no trace context.
//
// By the semantic conventions that span is a producer's ("send orders"); any other does as well.
func (t *Tracing) Inject(ctx context.Context) []delayqueue.MsgOption {
	carrier := propagation.MapCarrier{}
	t.propagator.Inject(ctx, carrier)
	var opts []delayqueue.MsgOption
	for key, value := range carrier {
		opts = append(opts, delayqueue.WithHeader(key, value))
	}
	return opts
}

// errorText is an error in words, also if its own method panics.
func errorText(err error) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("%T, whose Error method panicked", err)
		}
	}()
	return err.Error()
}

// Middleware makes a consumer's span ("process orders") around each call of the handler of the queue of this name.
//
// It is linked to the span that the message was sent in, and not its child: the conventions ask for a
// link in any case and leave the parent to choice
// (https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/#trace-structure). A message may be
// delivered days after it was sent, and more than once, and a trace of days is none that a
// back end can sample or show. The span's parent is whatever span WithBaseContext has, if any. Baggage reaches the
// handler's context.
func (t *Tracing) Middleware(queue string) func(delayqueue.Handler) delayqueue.Handler {
	queue = observe.Text(queue)
	return func(next delayqueue.Handler) delayqueue.Handler {
		return func(ctx context.Context, msg *delayqueue.Message) error {
			attrs := append(attributes(queue),
				semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess,
				semconv.MessagingMessageID(observe.Text(msg.ID)), attribute.Int("delayqueue.delivery", msg.Delivery))
			opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attrs...)}
			sent := t.propagator.Extract(context.Background(), propagation.MapCarrier(msg.Headers))
			if creation := trace.LinkFromContext(sent); creation.SpanContext.IsValid() {
				opts = append(opts, trace.WithLinks(creation))
			}
			if carried := baggage.FromContext(sent); carried.Len() > 0 {
				ctx = baggage.ContextWithBaggage(ctx, carried)
			}
			ctx, span := t.tracer.Start(ctx, "process "+queue, opts...)
			defer span.End()
			err := delayqueue.ErrPanicked // unless it returns
			defer func() {
				outcome := observe.OutcomeOf(ctx, err)
				span.SetAttributes(attribute.String("delayqueue.outcome", string(outcome)))
				if outcome == observe.Nack {
					span.SetAttributes(semconv.ErrorType(err))
					span.SetStatus(codes.Error, observe.Text(errorText(err)))
				}
			}()
			err = next(ctx, msg)
			return err
		}
	}
}
