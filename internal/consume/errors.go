package consume

import (
	"errors"
	"fmt"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// errTooMuchFollows: the face has one name for it and for a payload that is too large.
var errTooMuchFollows = fmt.Errorf("%w: at most 100 messages follow one message, of 1 MB together", ErrPayloadTooLarge)

// Why a delivery ended without an ack, or why the context of a handler ended or is refused. The face gives each error its public name.
var (
	ErrNacked          = errors.New("callback returned false")
	ErrPanicked        = errors.New("handler panicked")
	ErrConsumeTimeout  = errors.New("handler ran past its limit")
	ErrExpired         = errors.New("message expired")
	ErrPoison          = errors.New(script.PoisonText)
	ErrDeliveryLost    = errors.New("delivery was lost: its lease ran out")
	ErrCanceled        = errors.New("message was canceled")
	ErrShutdown        = errors.New("consumer is shutting down")
	ErrNotHandling     = errors.New("this is not the context of a running handler")
	ErrPayloadTooLarge = errors.New("payload too large")
)
