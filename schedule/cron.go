package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// A cronTiming is a cron expression in a zone.
type cronTiming struct {
	minutes, hours, days, months, weekdays uint64 // bit n: the value n; star beside them: any
	realTime                               bool   // the hours have * or a step, and follow real time
	zone                                   *time.Location
}

// star is the bit that robfig/cron sets for a * or a ?.
const star = 1 << 63

// cronFields are the fields of an expression, and what each may hold.
var cronFields = [...]struct{ name, values string }{
	{"minute", "0 to 59"}, {"hour", "0 to 23"}, {"day of the month", "1 to 31"}, {"month", "1 to 12 or JAN to DEC"},
	{"day of the week", "0 (Sunday) to 6 or SUN to SAT"},
}

// cronNames stand for expressions.
var cronNames = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// parseCron reads an expression. Its error says where it breaks.
func parseCron(text string, zone *time.Location) (*cronTiming, error) {
	whole := strings.TrimSpace(text)
	if strings.HasPrefix(whole, "@") {
		named, known := cronNames[strings.ToLower(whole)]
		if !known {
			return nil, fmt.Errorf("%w: cron %q: position 1: want five fields, or @hourly, @daily, @weekly, @monthly or @yearly; "+
				"of an interval say Every", ErrBadEntry, text)
		}
		whole = named
	} else if err := checkCron(text); err != nil {
		return nil, err
	}
	parsed, err := cronParser.Parse(whole)
	if err != nil {
		return nil, fmt.Errorf("%w: cron %q: %v", ErrBadEntry, text, err)
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("%w: cron %q: no times of day", ErrBadEntry, text)
	}
	hours := strings.Fields(whole)[1]
	return &cronTiming{
		minutes: fields.Minute, hours: fields.Hour, days: fields.Dom, months: fields.Month, weekdays: fields.Dow,
		realTime: strings.ContainsAny(hours, "*?/"), zone: zone,
	}, nil
}

// checkCron finds the first piece of an expression that cannot be read.
func checkCron(text string) error {
	broken := func(at int, format string, args ...any) error {
		return fmt.Errorf("%w: cron %q: position %d: %s", ErrBadEntry, text, at+1, fmt.Sprintf(format, args...))
	}
	n := 0
	for at := 0; at < len(text); {
		if text[at] == ' ' || text[at] == '\t' {
			at++
			continue
		}
		field := text[at:]
		if end := strings.IndexAny(field, " \t"); end >= 0 {
			field = field[:end]
		}
		switch {
		case strings.HasPrefix(field, "TZ=") || strings.HasPrefix(field, "CRON_TZ="):
			return broken(at, "%q: the zone of an entry is its Zone", field)
		case n == len(cronFields):
			return broken(at, "%q: want no more than five fields: minute, hour, day of the month, month, day of the week", field)
		}
		for piece := range strings.SplitSeq(field, ",") {
			alone := []string{"*", "*", "*", "*", "*"}
			alone[n] = piece
			if _, err := cronParser.Parse(strings.Join(alone, " ")); err != nil || piece == "" || strings.HasPrefix(piece, "@") {
				return broken(at, "%s %q: want %s, a range a-b, * or a step */n", cronFields[n].name, piece, cronFields[n].values)
			}
			at += len(piece) + 1
		}
		n++
	}
	if n < len(cronFields) {
		return broken(len(text), "want the %s: an expression has five fields", cronFields[n].name)
	}
	return nil
}

// onDay says whether the expression means this day, in days since 1970.
func (c *cronTiming) onDay(day int64) bool {
	date := time.Unix(day*daySeconds, 0).UTC()
	if c.months&(1<<date.Month()) == 0 {
		return false
	}
	inMonth, inWeek := c.days&(1<<date.Day()) != 0, c.weekdays&(1<<date.Weekday()) != 0
	if (c.days|c.weekdays)&star != 0 {
		return inMonth && inWeek
	}
	return inMonth || inWeek
}

// searchDays is how far apart two days of an expression may be: 29 February is missing for eight years around 2100.
const searchDays = 366 * 9

// next is the first instant after one, in unix seconds; false if it never comes.
func (c *cronTiming) next(after int64) (int64, bool) {
	return c.nearest(after, 1, func(instant, best int64, found bool) bool {
		return instant > after && (!found || instant < best)
	})
}

// prev is the last instant before one.
func (c *cronTiming) prev(before int64) (int64, bool) {
	return c.nearest(before, -1, func(instant, best int64, found bool) bool {
		return instant < before && (!found || instant > best)
	})
}

// nearest looks through the days from an instant on, forwards or backwards. Where clocks are set back over midnight, instants of two
// days lie between each other, so it looks one day around, and one day further than where it finds any.
func (c *cronTiming) nearest(from, step int64, better func(instant, best int64, found bool) bool) (best int64, found bool) {
	wall := from + offsetAt(c.zone, from)
	first := floorDiv(wall, daySeconds) - step
	last := first + step*(searchDays+2)
	for day := first; day != last; day += step {
		if !c.onDay(day) {
			continue
		}
		before := found
		c.instants(day, func(instant int64) {
			if better(instant, best, found) {
				best, found = instant, true
			}
		})
		if found && !before {
			last = day + 2*step
		}
	}
	return best, found
}

// latest is the first of the latest n instants between two. It looks at each day once: a thousand times prev are 25 ms if
// minutes follow upon each other.
func (c *cronTiming) latest(before, after int64, n int) (int64, bool) {
	if n < 1 {
		return 0, false
	}
	var all []int64
	rest := -1 // days that are still looked at once there are enough; see nearest
	for day := floorDiv(before+offsetAt(c.zone, before), daySeconds) + 1; rest != 0 && (day+1)*daySeconds+farthest > after; day-- {
		if rest > 0 {
			rest--
		}
		if !c.onDay(day) {
			continue
		}
		c.instants(day, func(instant int64) {
			if after < instant && instant < before {
				all = append(all, instant)
			}
		})
		if rest < 0 && len(all) >= n {
			slices.Sort(all)
			if all = slices.Compact(all); len(all) >= n {
				rest = 1
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) == 0 {
		return 0, false
	}
	return all[max(len(all)-n, 0)], true
}

// instants are those of a day, in no order, and perhaps some twice.
func (c *cronTiming) instants(day int64, yield func(int64)) {
	clock := clockOf(c.zone, day)
	if len(clock.pieces) == 0 {
		return // this day does not exist there
	}
	for hour := range int64(24) {
		if c.hours&(1<<hour) == 0 {
			continue
		}
		for minute := range int64(60) {
			if c.minutes&(1<<minute) == 0 {
				continue
			}
			wall := day*daySeconds + hour*3600 + minute*60
			if c.realTime {
				clock.all(wall, yield)
			} else {
				yield(clock.once(wall))
			}
		}
	}
}
