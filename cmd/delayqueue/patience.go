//go:build !patient

package main

import "time"

// patience is how long a server may take to answer the first call, and how long is spent on a hint.
const patience = 5 * time.Second
