// Package typed sends Go values through a delayqueue, and hands each to the handler of its kind.
//
//	var CloseOrder = typed.Kind[Order]("close-order") // the name and the type, said once
//
//	info, err := CloseOrder.Send(ctx, queue, Order{ID: 42}, delayqueue.WithDelay(15*time.Minute))
//
//	mux := typed.NewMux()
//	typed.Handle(mux, CloseOrder, func(ctx context.Context, o Order, msg *delayqueue.Message) error {
//		return closeIfUnpaid(ctx, o.ID) // an error means what it means to any Handler
//	})
//	queue.WithHandler(mux.Handler).WithKindHeader(typed.Header) // numbers of each kind
//
// The payload is JSON, unless WithCodec says otherwise, and the kind travels in the header "kind": any program can
// send such a message, and ops.Queue and the command show it as it is.
//
// # Versions side by side
//
// While a new version of a service is rolled out, the old one gets messages of kinds that it does not know. A message
// whose kind has no handler here comes back after 5 to 10 seconds, again and again, and one that knows it gets it in
// the end: no retry is used. What nobody handles for an hour goes to garbage with ErrUnknownKind: it was due an hour
// ago and was handed out 60 times, and this Mux has met its kind for an hour. Names are compared exactly, and the log
// has one line for each kind. A message without a kind is treated in the same way, unless HandleUntyped says who
// handles it.
//
// A payload that does not decode goes to garbage at once, with ErrCodec, which says the kind and where. JSON may have
// fields that the type does not have, and lack some that it has; a type that changes more than that wants a kind with
// another name.
package typed
