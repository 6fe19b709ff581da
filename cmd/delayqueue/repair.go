package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/ops"
)

// repairStep is how many things one call of the script mends.
const repairStep = 100

// repair is one thing to mend.
type repair struct {
	Shard  int    `json:"shard,omitempty"` // from 1
	What   string `json:"what"`            // as in repair.lua
	Item   string `json:"item"`
	Result string `json:"result,omitempty"`

	store *script.Store // nil: the whole queue
}

func (r *repair) String() string {
	if r.Shard > 0 {
		return fmt.Sprintf("shard %d: %s%s", r.Shard, inWords[r.What], r.Item)
	}
	return inWords[r.What] + r.Item
}

// inWords is what each repair does.
var inWords = map[string]string{
	"pending": "drop from pending: ", "ready": "drop from ready: ", "unack": "drop from unack: ",
	"retry":   "drop from retry: ",
	"waiting": "drop from waiting: ", "garbage": "drop from garbage: ", "done": "drop from done: ", "key": "free key ",
	"place": "bring back message ", "lease": "delete from lease: ",
	"record": "set right the record of message ", "result": "delete the result of message ", "part": "delete from parts: ",
	"list": "set the list of groups right that left key ", "listed": "list by its key group ",
	"member": "delete from lanes: ", "laned": "put into its lane message ", "lane": "give turns right in lane ",
	"alarm": "set the alarm right: member ", "books": "accept in the books: ", "loss": "accept the loss: ",
}

// mends names the repairs, as in repair.lua, of findings that are no tags.
var mends = map[check.Kind]string{
	check.StrayKeyEntry: "key", check.NoPlace: "place", check.StrayRecord: "record", check.StrayResult: "result",
	check.StrayPart:  "part",
	check.StrayLease: "lease", check.StrayLeft: "list", check.NotListed: "listed", check.StrayAlarm: "alarm",
	check.StrayLane: "member", check.LostLane: "laned", check.WrongLane: "lane",
}

// plan lists the repairs in the order in which they must be made: a key is freed, a lease without a list is dropped,
// and a stray member of lanes is deleted, before their message comes back. What has no lane waits no more before turns
// are given on, because it would not do that, nor would a message whose record names a later delivery. Turns that are
// free are given when all messages are in their lanes.
func plan(s *check.State, found []finding) []repair {
	var tags []repair
	by := map[string][]repair{}
	lost := map[string]bool{}  // ids of the tags that are dropped
	wrong := map[string]bool{} // ids that have a wrong record, or stand in several places
	for _, f := range found {
		item, id := f.Item, f.Item[strings.LastIndexByte(f.Item, ':')+1:]
		switch f.Kind {
		case check.NoEnvelope:
			tags = append(tags, repair{What: f.Structure, Item: item})
			lost[id] = true
		case check.LostLease:
			if f.Structure == "unack" { // it has no list
				tags = append(tags, repair{What: f.Structure, Item: item})
			}
		case check.BadTag:
			if f.Structure != "lease" && s.Messages[id].Size == 0 {
				tags = append(tags, repair{What: f.Structure, Item: item})
			}
		case check.NoPlace:
			if s.Messages[item].Problem != "" {
				continue
			}
		case check.StrayPart:
			if id, _, _ := strings.Cut(item, ":"); s.Messages[id].Size != 0 {
				continue
			}
		case check.StrayLeft:
			item = strings.TrimPrefix(item, ":")
		case check.LostLane:
			item = id // of a tag in waiting, or an id
			if f.Structure == "waiting" {
				by["waits"] = append(by["waits"], repair{What: "laned", Item: id})
				continue
			}
		case check.BadRecord, check.WrongRecord, check.ManyPlaces:
			wrong[item] = true
		}
		if what := mends[f.Kind]; what != "" {
			by[what] = append(by[what], repair{What: what, Item: item})
		}
	}
	for _, e := range slices.Concat(s.Pending, s.Ready, s.Retry, s.Waiting) {
		if wrong[e.ID] && e.Delivery > 0 && e.Delivery < s.Fail[e.ID].Delivery { // nobody could settle that
			by["record"] = append(by["record"], repair{What: "record", Item: e.Tag})
		}
	}
	for key, id := range s.Keys {
		if lost[id] {
			by["key"] = append(by["key"], repair{What: "key", Item: key})
		}
	}
	slices.SortFunc(by["key"], func(a, b repair) int { return strings.Compare(a.Item, b.Item) })
	slices.SortStableFunc(tags, func(a, b repair) int { return strings.Compare(a.What, b.What) })
	for _, what := range []string{
		"lease", "key", "record", "waits", "member", "place", "laned", "lane", "result", "part", "list", "listed", "alarm",
	} {
		tags = append(tags, by[what]...)
	}
	return slices.Compact(tags)
}

func describePlan(plan []repair) {
	if len(plan) == 0 {
		say("\nnothing of it can be repaired safely")
		return
	}
	say("\nthe repair would do this:")
	for _, same := range chunks(plan) {
		for _, r := range same[:min(len(same), examples)] {
			say("  %s", r.String())
		}
		if more := len(same) - examples; more > 0 {
			say("  … and %s like that", plural(more, "other"))
		}
	}
}

// chunks are the runs of repairs of one kind.
func chunks(plan []repair) [][]repair {
	var all [][]repair
	for i, r := range plan {
		if i == 0 || plan[i-1].What != r.What || plan[i-1].Shard != r.Shard {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], r)
	}
	return all
}

// repair works step by step, with pauses as long as the steps took, and writes the results into plan.
func (a *app) repair(ctx context.Context, queue string, plan []repair) error {
	bar := a.progress("repairing", int64(len(plan)))
	defer finish(bar)
	for len(plan) > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if plan[0].store == nil { // the last ones, which one call accepts
			missing, err := a.newMonitor(queue).AcceptBalance(ctx)
			if err != nil {
				return err
			}
			for i := range plan {
				if plan[i].Result = "done"; plan[i].What == "books" && missing == 0 {
					plan[i].Result = "sound"
				} else if plan[i].What == "books" {
					plan[i].Item = differenceOf(missing) // now
				}
			}
			_ = bar.Add(len(plan)) // a bar that cannot be drawn stops nothing
			return nil
		}
		begun := time.Now()
		flaws := make([]script.Flaw, 0, repairStep)
		for _, r := range plan[:min(len(plan), repairStep)] {
			if r.store == plan[0].store {
				flaws = append(flaws, script.Flaw{What: r.What, Item: r.Item})
			}
		}
		words, err := plan[0].store.Repair(ctx, flaws)
		if errors.Is(err, ops.ErrUnknownLayout) {
			return unknownLayout(queue)
		}
		if err != nil {
			return err
		}
		for i, word := range words {
			plan[i].Result = word
		}
		plan = plan[len(words):]
		_ = bar.Add(len(words)) // a bar that cannot be drawn stops nothing
		if len(plan) > 0 {
			link.Sleep(ctx, time.Since(begun))
		}
	}
	return nil
}

// unknownLayout is the error for a queue that a newer version writes.
func unknownLayout(queue string) error {
	return fail(exitRefused, "queue %q: repair: %v: upgrade this program", queue, ops.ErrUnknownLayout)
}

func describeResults(plan []repair) {
	results := map[string]int{}
	for _, r := range plan {
		results[r.Result]++
	}
	say("repaired %s", plural(results["done"]+results["garbage"], "thing"))
	for _, r := range plan {
		if r.store == nil && r.Result == "done" {
			say("accepted in the books: %s", r.Item)
		}
	}
	if n := results["garbage"]; n > 0 {
		say("%s went to garbage, because another live message has the key", plural(n, "message"))
	}
	if n := results["sound"]; n > 0 {
		say("%s had been mended meanwhile", plural(n, "thing"))
	}
}
