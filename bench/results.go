package main

import (
	"math"
	"slices"
)

// A metric names a figure. Those of time are microseconds a message unless they say otherwise.
type metric string

const (
	rate      metric = "messages/s"
	redisCPU  metric = "Redis CPU us/message"
	clientCPU metric = "client CPU us/message"
	commands  metric = "commands/message"
	trips     metric = "round trips/message"
	allocs    metric = "allocations/message"
	bytesEach metric = "bytes/message"

	lateP50 metric = "lateness p50 ms"
	lateP99 metric = "lateness p99 ms"
	lateMax metric = "lateness max ms"
	early   metric = "early"
	fetches metric = "fetches/message"

	commandsSecond metric = "commands/s"
	tripsSecond    metric = "round trips/s"
	redisShare     metric = "Redis CPU % of a core"
	clientShare    metric = "client CPU % of a core"

	holdMs    metric = "longest hold ms"
	pingP99   metric = "PING p99 ms"
	pingMax   metric = "PING max ms"
	pingQuiet metric = "PING p99 ms, idle server"

	sendRedis   metric = "send: Redis CPU us"
	sendClient  metric = "send: client CPU us"
	sendLog     metric = "log of send"
	bytesIn     metric = "bytes in"
	drainRedis  metric = "drain: Redis CPU us"
	drainClient metric = "drain: client CPU us"
	drainLog    metric = "log of drain"
	bytesOut    metric = "bytes out"
)

// figures are what one measurement found.
type figures map[metric]float64

// A row is what was done, with the samples of each system. Rows are the output of -json, too.
type row struct {
	Name    string
	Kind    kind
	Samples map[string][]figures
}

// values of a metric in all rounds.
func (r *row) values(system string, m metric) []float64 {
	var values []float64
	for _, f := range r.Samples[system] {
		if v, ok := f[m]; ok {
			values = append(values, v)
		}
	}
	return values
}

// median of a metric over the rounds.
func (r *row) median(system string, m metric) (float64, bool) {
	values := r.values(system, m)
	return median(values), len(values) > 0
}

// results of a run, in the order in which they came.
type results struct{ rows []*row }

// row finds or makes a row.
func (r *results) row(name string, k kind) *row {
	if found := r.find(name); found != nil {
		return found
	}
	made := &row{Name: name, Kind: k, Samples: map[string][]figures{}}
	r.rows = append(r.rows, made)
	return made
}

func (r *results) find(name string) *row {
	i := slices.IndexFunc(r.rows, func(x *row) bool { return x.Name == name })
	if i < 0 {
		return nil
	}
	return r.rows[i]
}

// of is the median of a metric in a row, if both are there.
func (r *results) of(name, system string, m metric) (float64, bool) {
	found := r.find(name)
	if found == nil {
		return 0, false
	}
	return found.median(system, m)
}

// median of values, NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// quantile q of sorted values by the nearest rank, NaN of none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
