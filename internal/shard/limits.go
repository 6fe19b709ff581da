package shard

import (
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// Divide is the part of limits of a queue that one of n shards has. The rate is divided exactly, the burst and the concurrency are rounded up.
func Divide(l script.RateLimits, n int) script.RateLimits {
	return script.RateLimits{Rate: l.Rate, Per: l.Per * time.Duration(n), Burst: (l.Burst + n - 1) / n, Concurrency: (l.Concurrency + n - 1) / n}
}
