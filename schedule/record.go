package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// A record is what Redis keeps of an entry: a value of the hash schedules, by its name.
type record struct {
	Version int   `json:"v"`                 // of what is written here: see recordVersion
	Gen     int64 `json:"gen"`               // its generation, rising by two or more with each change
	Since   int64 `json:"since"`             // unix s: its instants come after this one
	Paused  bool  `json:"paused,omitempty"`  // instants pass
	Passed  int64 `json:"passed,omitempty"`  // in pauses that have ended
	Removed bool  `json:"removed,omitempty"` // it is deleted once it is no longer open
	// unix us of a change that is not complete: messages of the generation before may be there
	Open    int64   `json:"open,omitempty"`
	Old     int64   `json:"old,omitempty"`     // of an open one: that generation
	Void    []int64 `json:"void,omitempty"`    // of an open one: instants that may have been sent for that
	Decided bool    `json:"decided,omitempty"` // of an open one: Since is after what has run of them
	// of an open one: it begins at Since, whatever was sent last (clock.go, goOn)
	Anew bool    `json:"anew,omitempty"`
	Ran  []int64 `json:"ran,omitempty"` // instants to come that have run early, by a clock that was ahead

	At      int64  `json:"at,omitempty"`      // unix s of the last change, but for one with Anew
	By      string `json:"by,omitempty"`      // who made that (WithOperator)
	Why     string `json:"why,omitempty"`     // and why (WithReason)
	Program string `json:"program,omitempty"` // whose list of entries it is on (SetAll); "": nobody's
	plan

	unreadable error // why Redis's text is none
	freed      int64 // of one to be, with Anew: an instant whose message was taken back
}

// recordVersion is the newest version of a record that this program knows. What an older program would misread raises
// it. A field that is not known is as a newer version: who cut off what it does not know would run the entry
// otherwise than it was set.
const recordVersion = 1

// ErrNewer: an entry was set by a newer version of this package, and says what this one does not know. It is not sent
// for here, and cannot be changed, but removed. It wraps ErrBadEntry.
var ErrNewer = fmt.Errorf("%w: a newer version of this package has written it", ErrBadEntry)

// maxVoid is the most that any change notes: each of them costs a call when the change is completed.
const maxVoid = 1000 + 2*aheadSeconds

func readRecord(text string) (*record, error) {
	r := new(record)
	strict := json.NewDecoder(strings.NewReader(text))
	strict.DisallowUnknownFields()
	err := strict.Decode(r)
	switch {
	case r.Version > recordVersion:
		return nil, fmt.Errorf("%w: version %d", ErrNewer, r.Version)
	case err != nil && json.Unmarshal([]byte(text), new(record)) == nil: // but for what is not known
		return nil, fmt.Errorf("%w: %w", ErrNewer, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrBadEntry, err)
	}
	if strict.More() {
		return nil, fmt.Errorf("%w: something stands behind it", ErrBadEntry)
	}
	if r.Gen < 1 || r.Gen > maxGen-2 || r.Passed < 0 || r.Since < 0 || r.Since > maxInstant || r.CatchUp < NoCatchUp ||
		r.CatchUp > maxCatchUp || len(r.Void) > maxVoid || len(r.Ran) > maxVoid {
		return nil, fmt.Errorf("%w: generation %d since %d, %d void", ErrBadEntry, r.Gen, r.Since, len(r.Void))
	}
	return r, nil
}

// sameTimes says whether two records run, and at the same instants.
func (r *record) sameTimes(to *record) bool {
	return !r.Paused && !r.Removed && !to.Paused && !to.Removed && r.times == to.times
}

// samePlan says whether two records send the same, at the same instants.
func (r *record) samePlan(to *record) bool {
	return (&record{plan: r.plan}).text() == (&record{plan: to.plan}).text()
}

func (r *record) text() string {
	if r == nil {
		return ""
	}
	of := *r
	of.Version = recordVersion
	text, err := json.Marshal(&of)
	if err != nil { // it is made of numbers, texts and bytes
		panic(err)
	}
	return string(text)
}

// passed is how many instants of when have passed in pauses until now.
func (r *record) passed(when timing, now int64) int64 {
	if !r.Paused {
		return r.Passed
	}
	return r.Passed + when.count(r.Since, now+1)
}

// readSkips reads what look has counted; what is not that counts as nothing.
func readSkips(text string) (s Skipped) {
	if n, err := fmt.Sscanf(text, "%d %d", &s.Overlap, &s.Missed); n != 2 || err != nil || s.Overlap < 0 || s.Missed < 0 {
		return Skipped{}
	}
	return s
}

// A number in a sequence is the generation of an entry, and the instant: what is sent for an entry as it was comes too
// late as soon as the sequence has passed the next generation.
const (
	instantBits = 33
	maxInstant  = 1<<instantBits - 1 // the year 2242
	maxGen      = 1<<30 - 1
)

func number(gen, instant int64) int64 { return gen<<instantBits | instant }

func split(number int64) (gen, instant int64) { return number >> instantBits, number & maxInstant }

// sequenceOf is the sequence of an entry, and the key of its messages if it skips.
func sequenceOf(name string) string { return "schedule/" + name }

// keyOf is the key of a message that is sent ahead. It lies in the shard of the sequence of its entry. No two entries
// have the same one: the name begins behind the hash tag of that sequence.
func keyOf(name string, gen, instant int64) string {
	return fmt.Sprintf("%s%d.%d{%s}/%s", aheadKeys, instant, gen, script.HashTag(sequenceOf(name)), name)
}

// aheadKeys is how such a key begins.
const aheadKeys = "schedule@"

// A table is the hash of a queue's entries. The field "" has a text that each change replaces. The field of skipsOf
// counts what an entry has skipped: two numbers, and which instant was counted last. That of refusedOf says why a
// replica could not send for a generation of it, and lookedField when a replica looked last, in unix s.
type table struct {
	store *script.Store
	clock func() time.Time // of this process: how long ago something was is all that it is asked for
}

// call calls a script, which may be sent again, until ctx ends or two seconds are over. reply is about how many bytes
// come back.
func (t *table) call(ctx context.Context, sc *script.Script, reply int, args ...any) (*redis.Cmd, error) {
	return link.Read(ctx, func(ctx context.Context) (*redis.Cmd, error) { return t.store.Eval(ctx, sc, reply, args...) })
}

// skipsOf is that field: no entry has such a name.
func skipsOf(name string) string { return "\x00skipped/" + name }

// refusedOf is such a field, too.
func refusedOf(name string) string { return "\x00refused/" + name }

// lookedField is one, of all entries together.
const lookedField = "\x00looked"

// beside says whether a field of the hash is no entry's record.
func beside(field string) bool {
	return field == "" || field == lookedField || field == changesField || strings.HasPrefix(field, skipsOf("")) ||
		strings.HasPrefix(field, refusedOf(""))
}

// A skip is what a replica has not sent for, and no other either.
type skip struct {
	name            string
	number          int64 // of the instant that was settled with it
	overlap, missed int64
}

// mostSkips is how many are told in one look.
const mostSkips = 100

// look asks for the server's time, and what tells whether something has changed since. It takes along what was
// skipped: what was counted last for an entry is not counted again, so it may be sent again. A replica's look is
// noted, so that all see that somebody runs the entries: at most every three seconds, for that is a write.
//
//   - KEYS: schedules.
//   - ARGV: 1 '1': a replica looks, and asks for the history of the server, too. Then of each skip: name, number,
//     overlap, missed.
//   - Returns {s, us, text of the last change, that history: after a failover or restart it has another}; empty
//     texts for what there is not.
//   - Cost: 2 commands; of a replica 3 to 5 more, and INFO; of each skip 3. Without skips it writes nothing but that
//     note. A server that is full counts and notes none. Where there is no hash none is made. A server that has
//     become a replica answers READONLY, so that the client looks for the primary.
var lookScript = script.New("schedules", `
for i = 2, #ARGV - 3, 4 do
  if redis.call('HGET', KEYS[1], ARGV[i]) then
    local field = '\0skipped/' .. ARGV[i]
    local overlap, missed, last = string.match(redis.call('HGET', KEYS[1], field) or '', '^(%d+) (%d+) (%d+)$')
    if last ~= ARGV[i + 1] then
      overlap = (tonumber(overlap) or 0) + tonumber(ARGV[i + 2])
      missed = (tonumber(missed) or 0) + tonumber(ARGV[i + 3])
      redis.pcall('HSET', KEYS[1], field, string.format('%.0f %.0f ', overlap, missed) .. ARGV[i + 1])
    end
  end
end
local time, info = redis.call('TIME'), ARGV[1] == '1' and redis.pcall('INFO', 'replication')
if ARGV[1] == '1' and redis.call('HLEN', KEYS[1]) > 0 then
  local looked, now = tonumber(redis.call('HGET', KEYS[1], '\0looked') or ''), tonumber(time[1])
  if not looked or looked > now or looked < now - 2 then
    local noted = redis.pcall('HSET', KEYS[1], '\0looked', time[1])
    if type(noted) == 'table' and string.find(noted.err or '', 'READONLY', 1, true) then
      return noted -- a primary that is one no more
    end
  end
end
local history = type(info) == 'string' and string.match(info, 'master_replid:(%w+)') or ''
return {time[1], time[2], redis.call('HGET', KEYS[1], '') or '', history}`)

// change replaces the record of an entry, if it is as the caller has read it. Sent again it does nothing more.
//
// KEYS: schedules ARGV: 1 name, 2 record that is there, 3 record to be; an empty text for none. 4 unix us until which
// it may be done. 5 '1': what it
//
//	has skipped counts anew
//
// Returns 1, or 0: another one is there, or it is later; then nothing was changed
// Cost: 9 commands. The last 60 changes are noted, so that replicas read what has changed and no more.
var changeScript = script.New("schedules", `
local is = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if is == ARGV[3] then return 1 end
local time = redis.call('TIME')
if is ~= ARGV[2] or tonumber(time[1]) * 1000000 + tonumber(time[2]) > tonumber(ARGV[4]) then return 0 end
local at = time[1] .. '.' .. time[2]
local count, born = string.match(redis.call('HGET', KEYS[1], '') or '', '^%d+%.%d+ (%d+) (%S+)$')
count = string.format('%.0f', (tonumber(count) or 0) + 1)
redis.call('HSET', KEYS[1], '', at .. ' ' .. count .. ' ' .. (born or at))
local lines = (born and redis.call('HGET', KEYS[1], '\0changes') or '') .. count .. ' ' .. ARGV[1] .. '\n'
local _, n = string.gsub(lines, '\n', '')
for i = 61, n do lines = string.gsub(lines, '^[^\n]*\n', '') end
redis.call('HSET', KEYS[1], '\0changes', lines)
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1], '\0skipped/' .. ARGV[1], '\0refused/' .. ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  if ARGV[5] == '1' then redis.call('HDEL', KEYS[1], '\0skipped/' .. ARGV[1]) end
end
return 1`)

// refuse notes why a replica cannot send for a generation of an entry.
//
// KEYS: schedules
// ARGV: 1 name, 2 generation, 3 why
// Returns 1.
// Cost: 2 commands. Of an entry that is not there nothing is noted.
var refuseScript = script.New("schedules", `
if redis.call('HGET', KEYS[1], ARGV[1]) then
  redis.call('HSET', KEYS[1], '\0refused/' .. ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
end
return 1`)

func (t *table) refuse(ctx context.Context, name string, gen int64, why string) error {
	_, err := t.call(ctx, refuseScript, 0, name, gen, why)
	return err
}

// readRefusal is why a replica could not send for a generation of an entry; "" if none said so.
func readRefusal(text string, gen int64) string {
	of, why, _ := strings.Cut(text, " ")
	if of != strconv.FormatInt(gen, 10) {
		return ""
	}
	return script.OneLine(why, script.MaxWhy)
}

// A reading is what look found, and when.
type reading struct {
	us      int64     // of the server
	at      time.Time // of this process
	clock   func() time.Time
	version string
	history string
}

// now is the server's time, in unix us, or a little before.
func (r *reading) now() int64 { return r.us + r.age().Microseconds() }

func (r *reading) age() time.Duration { return r.clock().Sub(r.at) }

func (t *table) look(ctx context.Context, history bool, skips ...skip) (*reading, error) {
	args := []any{history}
	for _, s := range skips {
		args = append(args, s.name, s.number, s.overlap, s.missed)
	}
	cmd, err := t.call(ctx, lookScript, 0, args...)
	if err != nil {
		return nil, fmt.Errorf("look: %w", err)
	}
	got, err := cmd.StringSlice()
	if err != nil || len(got) != 4 {
		return nil, fmt.Errorf("look: %d parts: %w", len(got), err)
	}
	s, err1 := strconv.ParseInt(got[0], 10, 64)
	us, err2 := strconv.ParseInt(got[1], 10, 64)
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("look: time %q %q", got[0], got[1])
	}
	return &reading{us: s*1_000_000 + us, at: t.clock(), clock: t.clock, version: got[2], history: got[3]}, nil
}

// noLimit is an instant until which a change may be stored that is always to come.
const noLimit = math.MaxInt64 / 2

// change replaces the record of an entry if it is as the caller has read it, until an instant in unix us. If recount,
// what the entry has skipped counts anew.
func (t *table) change(ctx context.Context, name, is, to string, until int64, recount bool) (done bool, err error) {
	cmd, err := t.call(ctx, changeScript, 0, name, is, to, until, recount)
	if err != nil {
		return false, err
	}
	return cmd.Bool()
}

// read returns the record of an entry; "" if there is none. It is a script, as all else that reads: a client that may
// read from replicas of the server (ReadOnly, RouteRandomly) sends a plain HGET or HSCAN to any of them.
//
// KEYS: schedules
// ARGV: 1 name
// Returns the record, or an empty text
// Cost: 1 command. Writes nothing.
var readScript = script.New("schedules", `return redis.call('HGET', KEYS[1], ARGV[1]) or ''`)

func (t *table) read(ctx context.Context, name string) (string, error) {
	cmd, err := t.call(ctx, readScript, pageBytes, name)
	if err != nil {
		return "", err
	}
	return cmd.Text()
}

// page returns some fields.
//
// KEYS: schedules
// ARGV: 1 cursor, 2 about how many
// Returns {cursor, name, record, name, record, ...}
// Cost: 1 command. Writes nothing.
var pageScript = script.New("schedules", `
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
table.insert(page[2], 1, page[1])
return page[2]`)

const (
	firstFields = 10
	mostFields  = 1000
	pageBytes   = 1 << 20 // about
)

// all returns all fields but the one of the version, read in pages: records, and what skipsOf names. limit is how
// long one page may take; 0: as long as ctx allows.
func (t *table) all(ctx context.Context, limit time.Duration) (map[string]string, error) {
	all, fields := map[string]string{}, firstFields
	for cursor := "0"; ; {
		page, err := within(ctx, limit, func(ctx context.Context) ([]string, error) {
			cmd, err := t.call(ctx, pageScript, pageBytes, cursor, fields)
			if err != nil {
				return nil, err
			}
			return cmd.StringSlice()
		})
		if err != nil || len(page)%2 == 0 {
			return nil, fmt.Errorf("page of %d texts: %w", len(page), err)
		}
		bytes := 0
		for i := 1; i < len(page); i += 2 {
			if bytes += len(page[i]) + len(page[i+1]); page[i] != "" {
				all[page[i]] = page[i+1]
			}
		}
		if cursor = page[0]; cursor == "0" {
			return all, nil
		}
		fields = max(1, min(fields*pageBytes/max(bytes, 1), mostFields))
	}
}

// within makes a call that may take so long; 0: as long as ctx.
func within[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	if limit > 0 {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	return call(ctx)
}
