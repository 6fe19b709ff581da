package main

import "slices"

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
)

// figures are what one measurement found.
type figures map[metric]float64

// A row is one line of a table: what was done, with the samples of each system.
type row struct {
	name    string
	kind    kind
	samples map[string][]figures
}

// median of a metric over the rounds.
func (r *row) median(system string, m metric) (float64, bool) {
	var values []float64
	for _, f := range r.samples[system] {
		if v, ok := f[m]; ok {
			values = append(values, v)
		}
	}
	return median(values), len(values) > 0
}

// results of a run, in the order in which they came.
type results struct{ rows []*row }

// row finds or makes a row.
func (r *results) row(name string, k kind) *row {
	if found := r.find(name); found != nil {
		return found
	}
	made := &row{name: name, kind: k, samples: map[string][]figures{}}
	r.rows = append(r.rows, made)
	return made
}

func (r *results) find(name string) *row {
	i := slices.IndexFunc(r.rows, func(x *row) bool { return x.name == name })
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
