package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// A cronTiming is a cron expression in a zone.
type cronTiming struct {
	minutes, hours, days, months, weekdays uint64 // bit n: the value n; star beside them: any
	monthRules, weekRules                  []dayRule
	realTime                               bool // the hours have * or a step, and follow real time
	zone                                   *time.Location
}

// star is the bit that robfig/cron sets for a * or a ?.
const star = 1 << 63

// cronFields are the fields of an expression, and what each may hold.
var cronFields = [...]struct {
	name, values string
	least, most  int
}{
	{"minute", "0 to 59", 0, 59}, {"hour", "0 to 23", 0, 23}, {"day of the month", "1 to 31, L, LW, L-3, 15W", 1, 31},
	{"month", "1 to 12 or JAN to DEC", 1, 12}, {"day of the week", "0 (Sunday) to 7 or SUN to SAT, FRIL, FRI#2", 0, 7},
}

// maxCron is how long an expression may be, in bytes: a list of all minutes has 169.
const maxCron = 500

var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// parseCron reads an expression. Its error says where it breaks.
func parseCron(text string, zone *time.Location) (*cronTiming, error) {
	if len(text) > maxCron {
		return nil, fmt.Errorf("%w: cron %.40q…: it has %d bytes, and may have %d", ErrBadEntry, text, len(text), maxCron)
	}
	c := &cronTiming{zone: zone}
	var ruled ruledFields
	whole := strings.ToLower(strings.TrimSpace(text))
	named := strings.HasPrefix(whole, "@")
	if !named {
		var err error
		if whole, ruled, err = c.readFields(text); err != nil {
			return nil, err
		}
	}
	parsed, err := cronParser.Parse(whole)
	fields, ok := parsed.(*cron.SpecSchedule)
	switch {
	case named && !ok:
		return nil, fmt.Errorf(
			"%w: cron %q: position 1: want five fields, or @hourly, @daily, @weekly, @monthly or @yearly; "+
				"of an interval say Every", ErrBadEntry, text)
	case err != nil:
		return nil, fmt.Errorf("%w: cron %q: %v", ErrBadEntry, text, err)
	}
	c.minutes, c.hours, c.days, c.months, c.weekdays = fields.Minute, fields.Hour, fields.Dom, fields.Month, fields.Dow
	if ruled[dayField] {
		c.days = 0
	}
	if ruled[weekdayField] {
		c.weekdays = 0
	}
	c.realTime = c.realTime || c.hours&star != 0
	return c, nil
}

// ruledFields are those that have nothing but rules.
type ruledFields [len(cronFields)]bool

// readFields takes the rules out of an expression, and returns it as robfig/cron reads it, with any number where
// nothing is left. Its error names the first piece that cannot be read.
func (c *cronTiming) readFields(text string) (plain string, ruled ruledFields, err error) {
	broken := func(at int, format string, args ...any) (string, ruledFields, error) {
		return "", ruled, fmt.Errorf("%w: cron %q: position %d: %w", ErrBadEntry, text, at+1, fmt.Errorf(format, args...))
	}
	var words []string
	for at := 0; at < len(text); {
		if text[at] == ' ' || text[at] == '\t' {
			at++
			continue
		}
		field := text[at:]
		if end := strings.IndexAny(field, " \t"); end >= 0 {
			field = field[:end]
		}
		n := len(words)
		switch {
		case strings.HasPrefix(field, "TZ=") || strings.HasPrefix(field, "CRON_TZ="):
			return broken(at, "%q: the zone of an entry is its Zone", field)
		case n == len(cronFields):
			return broken(at, "%q: want no more than five fields: minute, hour, day of the month, month, day of the week; "+
				"of seconds say Every", field)
		}
		var list []string
		for piece := range strings.SplitSeq(field, ",") {
			word, rule, err := readPiece(n, piece)
			if err == nil && rule == nil {
				alone := []string{"*", "*", "*", "*", "*"}
				alone[n] = word
				_, err = cronParser.Parse(strings.Join(alone, " "))
				list = append(list, word)
			}
			if errors.Is(err, errStep) {
				return broken(at, "%s %q: %w", cronFields[n].name, piece, err)
			} else if err != nil || piece == "" || strings.HasPrefix(piece, "@") {
				return broken(at, "%s %q: want %s, a range a-b, * or a step */n", cronFields[n].name, piece, cronFields[n].values)
			}
			c.addRule(n, rule)
			c.realTime = c.realTime || n == 1 && strings.Contains(piece, "/")
			at += len(piece) + 1
		}
		if len(list) == 0 {
			list, ruled[n] = []string{"1"}, true
		}
		words = append(words, strings.Join(list, ","))
	}
	if n := len(words); n < len(cronFields) {
		return broken(len(text), "want the %s: an expression has five fields", cronFields[n].name)
	}
	return strings.Join(words, " "), ruled, nil
}

func (c *cronTiming) addRule(n int, rule dayRule) {
	switch {
	case rule == nil:
	case n == dayField:
		c.monthRules = append(c.monthRules, rule)
	default:
		c.weekRules = append(c.weekRules, rule)
	}
}

// onDay says whether the expression means this day, in days since 1970.
func (c *cronTiming) onDay(day int64) bool {
	date := time.Unix(day*daySeconds, 0).UTC()
	if c.months&(1<<date.Month()) == 0 {
		return false
	}
	inMonth := c.days&(1<<date.Day()) != 0 || anyOf(c.monthRules, date)
	inWeek := c.weekdays&(1<<date.Weekday()) != 0 || anyOf(c.weekRules, date)
	if (c.days|c.weekdays)&star != 0 {
		return inMonth && inWeek
	}
	return inMonth || inWeek
}

func anyOf(rules []dayRule, date time.Time) bool {
	return slices.ContainsFunc(rules, func(rule dayRule) bool { return rule(date) })
}

// searchDays is how far apart two days of an expression may be: a 29 February that is a Monday (MON#5 in February)
// comes after 28 years, and after 40 around 2100.
const searchDays = 366 * 41

// next is the first instant after one, in unix seconds; false if it never comes. If clocks are set back over
// midnight, instants of two days lie between each other. So it looks at the day before, and at one day more than the
// first that has any.
func (c *cronTiming) next(after int64) (best int64, found bool) {
	first := floorDiv(after+offsetAt(c.zone, after), daySeconds) - 1
	last := first + searchDays + 2
	for day := first; day != last; day++ {
		if !c.onDay(day) {
			continue
		}
		before := found
		c.instants(day, func(instant int64) {
			if instant > after && (!found || instant < best) {
				best, found = instant, true
			}
		})
		if found && !before {
			last = day + 2
		}
	}
	return best, found
}

// latest is the first of the latest n instants between two.
func (c *cronTiming) latest(before, after int64, n int) (int64, bool) {
	if n < 1 {
		return 0, false
	}
	all := c.some(after, before, n, -1)
	if len(all) == 0 {
		return 0, false
	}
	return all[max(len(all)-n, 0)], true
}

// count is how many instants lie between two, at most mostCounted.
func (c *cronTiming) count(after, before int64) int64 {
	return int64(min(len(c.some(after, before, mostCounted, 1)), mostCounted))
}

// some are instants between two, in order: at least n of them if there are so many, the first ones, or with a step of
// -1 the last. It looks at each day once: a thousand times next or prev are 25 ms if minutes follow upon each other,
// and a replica that catches up sends nothing meanwhile.
func (c *cronTiming) some(after, before int64, n int, step int64) (all []int64) {
	if after >= before-1 {
		return nil
	}
	from := before
	if step > 0 {
		from = after
	}
	rest := -1 // days that are still looked at once there are enough; see next
	for day := floorDiv(from+offsetAt(c.zone, from), daySeconds) - step; rest != 0; day += step {
		if step > 0 && day*daySeconds-farthest >= before || step < 0 && (day+1)*daySeconds+farthest <= after {
			break
		}
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
	return slices.Compact(all)
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
