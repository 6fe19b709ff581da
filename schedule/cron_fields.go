package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// robfig/cron reads numbers, names, ranges, steps and lists. This file has what else a field may say: ranges that
// wrap, 7 for Sunday, and L, W and #.

// A dayRule says whether it means a day.
type dayRule func(date time.Time) bool

var weekdayNumbers = map[string]int{"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6}

var monthNumbers = map[string]int{"JAN": 1, "FEB": 2, "MAR": 3, "APR": 4, "MAY": 5, "JUN": 6, "JUL": 7, "AUG": 8,
	"SEP": 9, "OCT": 10,
	"NOV": 11, "DEC": 12}

// readPiece reads a piece of the list in field n: as robfig/cron reads it, or as a rule; then plain is "".
func readPiece(n int, piece string) (plain string, rule dayRule, err error) {
	switch upper := strings.ToUpper(piece); {
	case n == dayField && strings.ContainsAny(upper, "LW"):
		rule, err = monthRule(upper)
	case n == weekdayField && (strings.Contains(upper, "#") || strings.HasSuffix(upper, "L")):
		rule, err = weekRule(upper)
	default:
		if err = checkStep(n, upper); err == nil {
			plain, err = unwrapped(n, upper, piece)
		}
	}
	return plain, rule, err
}

// errStep: robfig/cron takes such a step, which leaves one value. Whoever wrote it meant an interval.
var errStep = errors.New("its step leads to no second value; for an interval use Every")

// checkStep wants a step to lead from the first value of a range to another one.
func checkStep(n int, upper string) error {
	span, stepText, _ := strings.Cut(upper, "/")
	step, err := strconv.Atoi(stepText)
	if err != nil {
		return nil // robfig/cron says what is wrong with it
	}
	low, high, ranged := strings.Cut(span, "-")
	first, last := cronFields[n].least, cronFields[n].most
	if n == weekdayField {
		last = 6 // 7 is 0
	}
	size := last - first + 1
	if a, ok := value(n, low); ok {
		first = a
	}
	if b, ok := value(n, high); ok && ranged {
		if last = b; b < first {
			last += size
		}
	}
	if step > max(min(last-first, size-1), 1) {
		return errStep
	}
	return nil
}

// The fields that say days.
const (
	dayField     = 2
	weekdayField = 4
)

// value reads a number or a name of a field. A day of the week may be 7.
func value(n int, text string) (int, bool) {
	names := map[int]map[string]int{3: monthNumbers, weekdayField: weekdayNumbers}[n]
	if v, named := names[text]; named {
		return v, true
	}
	v, err := strconv.Atoi(text)
	return v, err == nil && len(text) <= 2 && text[0] != '+' && text[0] != '-' && v >= cronFields[n].least &&
		v <= cronFields[n].most
}

// unwrapped writes a range that wraps, and one to or from the 7, as a list of numbers. Whatever else it is, it leaves
// alone.
func unwrapped(n int, upper, piece string) (string, error) {
	span, stepText, stepped := strings.Cut(upper, "/")
	low, high, ranged := strings.Cut(span, "-")
	a, isA := value(n, low)
	if n == weekdayField && !ranged && !stepped && isA && a == 7 {
		return "0", nil
	}
	b, isB := value(n, high)
	if !ranged || !isA || !isB || a <= b && b < 7 || a <= b && n != weekdayField {
		return piece, nil
	}
	step := 1
	if stepped {
		var err error
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
			return piece, nil // robfig/cron says what is wrong with it
		}
	}
	least, size := cronFields[n].least, cronFields[n].most-cronFields[n].least+1
	if n == weekdayField {
		size = 7
	}
	if b < a {
		b += size
	}
	var list []string
	for v := a; v <= b; v += step {
		list = append(list, strconv.Itoa((v-least)%size+least))
	}
	return strings.Join(list, ","), nil
}

// monthRule reads L, L-3, LW and 15W.
func monthRule(text string) (dayRule, error) {
	if text == "LW" {
		return func(date time.Time) bool { return date.Day() == nearestWeekday(date, lastDay(date)) }, nil
	}
	if before, ok := strings.CutPrefix(text, "L"); ok {
		n := 0
		if before != "" {
			var err error
			if n, err = strconv.Atoi(strings.TrimPrefix(before, "-")); err != nil || before[0] != '-' || n < 1 || n > 30 {
				return nil, fmt.Errorf("want L, LW, or L-1 to L-30")
			}
		}
		return func(date time.Time) bool { return date.Day() == lastDay(date)-n }, nil
	}
	number, found := strings.CutSuffix(text, "W")
	day, ok := value(dayField, number)
	if !found || !ok {
		return nil, fmt.Errorf("want L, LW, L-3, or a day and W as in 15W")
	}
	return func(date time.Time) bool { return day <= lastDay(date) && date.Day() == nearestWeekday(date, day) }, nil
}

// weekRule reads FRI#2 and FRIL.
func weekRule(text string) (dayRule, error) {
	name, nth, counted := strings.Cut(text, "#")
	if !counted {
		name = strings.TrimSuffix(text, "L")
	}
	weekday, ok := value(weekdayField, name)
	n, err := strconv.Atoi(nth)
	if !ok || counted && (err != nil || len(nth) != 1 || n < 1 || n > 5) {
		return nil, fmt.Errorf("want a day of the week before L, as in FRIL, or one with # and 1 to 5, as in FRI#2")
	}
	return func(date time.Time) bool {
		if date.Weekday() != time.Weekday(weekday%7) {
			return false
		}
		if counted {
			return (date.Day()-1)/7 == n-1
		}
		return date.Day()+7 > lastDay(date)
	}, nil
}

// lastDay is the last day of a date's month.
func lastDay(date time.Time) int {
	return time.Date(date.Year(), date.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// nearestWeekday is the day from Monday to Friday of a date's month that is nearest to a day of it.
func nearestWeekday(date time.Time, day int) int {
	switch time.Date(date.Year(), date.Month(), day, 0, 0, 0, 0, time.UTC).Weekday() {
	case time.Saturday:
		if day == 1 {
			return 3
		}
		return day - 1
	case time.Sunday:
		if day == lastDay(date) {
			return day - 2
		}
		return day + 1
	}
	return day
}
