package naive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// feeds: a feed is read, and each of its items becomes a message, whose handler buys something for the item. In the
// report, which is about Action Scheduler, items had two child jobs each, and the second one cost money for nothing.
// The handler of an item does all that it can: the provider gets the id of the message as a key. That tells a second
// delivery from the first one, but not a second message from the first one. So the message needs a key as well, which
// is made of what the message is about.
var feeds = scenario{
	name: "feeds",
	source: source{"https://github.com/Extra-Chill/data-machine/issues/832",
		"Batch fan-out creates duplicate child jobs for the same item_id"},
	mistake: "The handler sends a message for each item without a key, so a second delivery of the feed sends all again.",
	found:   []misfortune{dies, again, beside, replyLost},
	queues:  []string{"feeds", "items"},
	points:  []string{"after an item was sent", "after an item was bought"},
	lasts:   time.Hour,
	naive: func(p *process) []step {
		return readFeeds(p, func(string) []delayqueue.MsgOption { return nil })
	},
	correct: func(p *process) []step {
		return readFeeds(p, func(item string) []delayqueue.MsgOption {
			return []delayqueue.MsgOption{delayqueue.WithKey(item, delayqueue.Keep), delayqueue.WithKeyHold(held)}
		})
	},
	check: func(w *world) (err error) {
		for item := range feedItems {
			if n := w.charged(itemOf("news", item)); n != 1 {
				err = errors.Join(err, fmt.Errorf("%s was bought %d times", itemOf("news", item), n))
			}
		}
		return err
	},
}

const feedItems = 4

func itemOf(feed string, n int) string { return fmt.Sprintf("item %d of %s", n, feed) }

// readFeeds handles feeds and their items. The services differ in the options of an item's message.
func readFeeds(p *process, options func(item string) []delayqueue.MsgOption) []step {
	items := p.sender("items")
	p.queue("feeds").WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		for n := range feedItems {
			item := itemOf(msg.Payload, n)
			if _, err := items.Send(ctx, item, options(item)...); err != nil {
				return err // the feed is read again
			}
			p.at("after an item was sent")
		}
		return nil
	})
	p.queue("items").WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		p.charge(msg.ID, msg.Payload, 3)
		p.at("after an item was bought")
		return nil
	})
	return []step{{0, sends(p.sender("feeds"), "news", "news", delayqueue.WithDelay(time.Minute))}}
}
