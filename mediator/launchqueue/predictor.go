package launchqueue

import (
	"math"
	"time"

	"vgpud/fairshare"
	"vgpud/fairshare/duration"
	"vgpud/mediator/ipc"
)

// Predictor estimates how long the launches on one GPU run and what evicting them costs, by what
// earlier ones took (FLEP §4.2). Each guest has models of its own, so a guest that makes up kernels
// spoils no other guest's predictions. The zero value is ready to use.
type Predictor struct {
	guests map[fairshare.GuestID]*guestPredictor
	all    predictions
	cost   duration.Mean // of any eviction, which says a little about every guest's
}

type guestPredictor struct {
	models *duration.Models
	cost   duration.Mean // of evictions of any of its launches
	predictions
}

// predictions sums up predictions of launches that have ended.
type predictions struct {
	launches            uint64
	predicted, measured time.Duration
	errors              float64 // the sum of the differences, each as a part of what was measured
}

// maxError bounds the error of one prediction. One that is wrong by a factor of a thousand, as
// those of kernels that a guest makes up may be, says nothing about the others.
const maxError = 10

func (p *predictions) add(predicted, measured time.Duration) {
	p.launches++
	p.predicted = AddClamped(p.predicted, predicted)
	p.measured = AddClamped(p.measured, measured)
	p.errors += min(math.Abs(float64(predicted-measured))/float64(measured), maxError)
}

// AddClamped returns the sum of two durations, or the largest duration if the sum overflows.
// Executors say what their launches took.
func AddClamped(sum, d time.Duration) time.Duration {
	return sum + min(d, math.MaxInt64-sum)
}

// Accuracy says how well predictions matched.
type Accuracy struct {
	Launches            uint64
	Predicted, Measured time.Duration // sums
	// Error is the mean of the differences, each as a part of the measured duration.
	Error float64
}

// Add returns the accuracy of both.
func (a Accuracy) Add(b Accuracy) Accuracy {
	if n := a.Launches + b.Launches; n > 0 {
		a.Error = (a.Error*float64(a.Launches) + b.Error*float64(b.Launches)) / float64(n)
	}
	a.Launches += b.Launches
	a.Predicted += b.Predicted
	a.Measured += b.Measured
	return a
}

func (p *predictions) accuracy() Accuracy {
	a := Accuracy{Launches: p.launches, Predicted: p.predicted, Measured: p.measured}
	if p.launches > 0 {
		a.Error = p.errors / float64(p.launches)
	}
	return a
}

// Accuracy returns the accuracy over all guests' launches.
func (p *Predictor) Accuracy() Accuracy { return p.all.accuracy() }

// AccuracyOf returns the accuracy over one guest's launches.
func (p *Predictor) AccuracyOf(id fairshare.GuestID) Accuracy { return p.guest(id).accuracy() }

// guest returns a guest's part, which it makes if there is none.
func (p *Predictor) guest(id fairshare.GuestID) *guestPredictor {
	g := p.guests[id]
	if g == nil {
		if p.guests == nil {
			p.guests = make(map[fairshare.GuestID]*guestPredictor)
		}
		g = &guestPredictor{models: duration.New(duration.Options{})}
		p.guests[id] = g
	}
	return g
}

// features returns what a launch's duration depends on.
func features(s *ipc.Launch) duration.Features {
	return duration.Features{Blocks: uint64(s.Tasks), Threads: s.Threads, Input: s.InputBytes, Shared: s.SharedBytes}
}

// Predict sets how long a launch is expected to run, 0 if that is unknown: by the model of its
// kernel, or else by the mean that its executor has measured.
func (p *Predictor) Predict(l *Launch) {
	if l.slot.Events != ipc.NoEvents {
		return // they stay as long as there are events
	}
	l.Predicted = p.guest(l.Guest).models.Predict(duration.Kernel(l.slot.Kernel), features(&l.slot))
	if l.Predicted <= 0 {
		l.Predicted = l.slot.Predicted
	}
}

// Ended learns from a launch that has ended.
func (p *Predictor) Ended(l *Launch) {
	s := &l.slot
	if s.Failed || s.Used <= 0 || s.Events != ipc.NoEvents {
		return
	}
	g := p.guest(l.Guest)
	g.models.Observe(duration.Kernel(s.Kernel), features(s), s.Used)
	if l.Predicted > 0 {
		g.add(l.Predicted, s.Used)
		p.all.add(l.Predicted, s.Used)
	}
}

// Evicted learns from a launch that took so long to leave the GPU.
func (p *Predictor) Evicted(l *Launch, took time.Duration) {
	g := p.guest(l.Guest)
	g.models.ObserveEviction(duration.Kernel(l.slot.Kernel), took)
	g.cost.Add(took)
	p.cost.Add(min(took, maxLearned))
}

// maxLearned bounds what one guest's eviction says about other guests'. It is a few times what is
// assumed if nothing is known: how long a kernel takes to leave is up to its guest.
const maxLearned = 4 * fairshare.AssumedCost

// EvictionCost returns what evicting a launch is expected to cost: the mean of its kernel, or else
// of its guest, or else of all guests; 0 if none is known.
func (p *Predictor) EvictionCost(l *Launch) time.Duration {
	g := p.guest(l.Guest)
	if d := g.models.EvictionCost(duration.Kernel(l.slot.Kernel)); d > 0 {
		return d
	}
	if d := g.cost.Mean(); d > 0 {
		return d
	}
	return p.cost.Mean()
}

// Forget drops a guest's part.
func (p *Predictor) Forget(id fairshare.GuestID) { delete(p.guests, id) }
