package web

import "github.com/go-delayqueue/delayqueue"

// A life is the life of a message as a picture, with the place where one of them is.
type life struct {
	Label  string // for who does not see it
	Places []lifePlace
}

// A lifePlace is a box.
type lifePlace struct {
	X, Y, Width int
	Here        bool
	Text        string
}

// Middle is where its text goes.
func (p lifePlace) Middle() int { return p.X + p.Width/2 }

// Base is the line that its text stands on.
func (p lifePlace) Base() int { return p.Y + 20 }

// life draws where it is. The template has the arrows.
func (l *language) life(here delayqueue.State) *life {
	all := &life{Label: l.say("The life of a message; this one is: %s", l.state(here))}
	for _, p := range []struct {
		state       delayqueue.State
		x, y, width int
	}{
		{delayqueue.StatePending, 1, 10, 98}, {delayqueue.StateReady, 130, 10, 98}, {delayqueue.StateUnack, 256, 10, 103},
		{delayqueue.StateGarbage, 1, 75, 98}, {delayqueue.StateRetry, 130, 75, 98}, {delayqueue.StateDone, 295, 75, 64},
	} {
		all.Places = append(all.Places, lifePlace{p.x, p.y, p.width, p.state == here, l.state(p.state)})
	}
	return all
}
