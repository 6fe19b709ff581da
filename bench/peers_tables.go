package main

// A peerFigure is a line of the comparison.
type peerFigure struct {
	what string
	row  string
	metric
}

// peerSections are the tables of the comparison.
func (r *peersRun) peerSections() []struct {
	title string
	lines []peerFigure
} {
	throughput := func(suffix string) []peerFigure {
		return []peerFigure{
			{"send, one at a time: messages/s", send1 + suffix, rate},
			{"send, 64 callers: messages/s", send64 + suffix, rate},
			{"send, batches of 500: messages/s", sendBatch + suffix, rate},
			{"handle, 64 workers: messages/s", drain64 + suffix, rate},
			{"send, one at a time: server CPU us", send1 + suffix, serverCPU},
			{"send, 64 callers: server CPU us", send64 + suffix, serverCPU},
			{"send, batches of 500: server CPU us", sendBatch + suffix, serverCPU},
			{"handle, 64 workers: server CPU us", drain64 + suffix, serverCPU},
			{"send, one at a time: client CPU us", send1 + suffix, clientCPU},
			{"send, 64 callers: client CPU us", send64 + suffix, clientCPU},
			{"send, batches of 500: client CPU us", sendBatch + suffix, clientCPU},
			{"handle, 64 workers: client CPU us", drain64 + suffix, clientCPU},
		}
	}
	var backlog []peerFigure
	for _, level := range r.peerLevels() {
		for _, f := range []struct {
			what, title string
			metric
		}{
			{"send", "messages/s", rate}, {"send", "server CPU us", serverCPU},
			{"drain", "server CPU us", serverCPU}, {"memory", "bytes a message", bytesEach},
		} {
			row := backlogName(f.what, level)
			backlog = append(backlog, peerFigure{row + ": " + f.title, row, f.metric})
		}
	}
	return []struct {
		title string
		lines []peerFigure
	}{
		{titleThroughput, throughput("")},
		{titleStrict, throughput(", strict")},
		{titleLateness, []peerFigure{
			{"p50 ms", "lateness", lateP50}, {"p99 ms", "lateness", lateP99}, {"max ms", "lateness", lateMax},
			{"early, messages", "lateness", early}, {"never, messages", "lateness", never},
		}},
		{titleIdle, []peerFigure{
			{"commands or transactions/s", idleName, commandsSecond}, {"server, % of a core", idleName, redisShare},
			{"client, % of a core", idleName, clientShare},
		}},
		{titleBacklog, backlog},
		{titleKill, []peerFigure{
			{"run again, p50 s", "kill", again50}, {"run again, max s", "kill", againMax},
			{"not run again, messages", "kill", never}, {"retries charged", "kill", charged},
		}},
	}
}

// tables of what was found: a line for each figure, a column for each contender.
func (r *peersRun) tables() []table {
	var out []table
	for _, section := range r.peerSections() {
		t := table{title: section.title, head: []string{""}}
		t.head = append(t.head, r.measured()...)
		for _, l := range section.lines {
			line, any := []string{l.what}, false
			for _, name := range r.measured() {
				v, ok := r.res.of(l.row, name, l.metric)
				any = any || ok
				line = append(line, choose(ok, figure(v), "none"))
			}
			if any {
				t.lines = append(t.lines, line)
			}
		}
		if len(t.lines) > 0 {
			out = append(out, t)
		}
	}
	return out
}
