//go:build !patient

package main

import "time"

const (
	// patience is how long a server may take to answer the first call.
	patience = 5 * time.Second
	// hintTime is how long is spent on a hint, beside what was asked for.
	hintTime = 2 * time.Second
)
