//go:build patient

package main

import "time"

// A build for tests on machines that may stand still for seconds: what takes long there is no server that is away.
const patience = 30 * time.Second
