package daemon

import (
	"math"
	"time"

	"vgpud/fairshare"
	"vgpud/fairshare/duration"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
)

// foresight is what is expected of the launches on one GPU, by what they took
// before (FLEP §4.2). It is pure. Each guest has models of its own, so that it can
// spoil nobody else's by making up kernels.
type foresight struct {
	guests map[fairshare.GuestID]*foreseen
	all    tries
	cost   duration.Mean // of any eviction, as far as one guest's says anything of another's
}

// foreseen is a guest's part.
type foreseen struct {
	models *duration.Models
	cost   duration.Mean // of any eviction of its launches
	tries
}

// tries are predictions that could be held against what came of them.
type tries struct {
	launches            uint64
	predicted, measured time.Duration
	off                 float64 // the sum of the differences, each as a part of what was measured
}

// mostOff is how far off a prediction counts as at most: one that is off by a thousand
// times, as what a guest makes up may be, says nothing about the others.
const mostOff = 10

func (t *tries) add(predicted, measured time.Duration) {
	t.launches++
	t.predicted = grown(t.predicted, predicted)
	t.measured = grown(t.measured, measured)
	t.off += min(math.Abs(float64(predicted-measured))/float64(measured), mostOff)
}

// grown is a sum of durations with one more, as far as there is room: executors say what
// their launches took.
func grown(sum, d time.Duration) time.Duration {
	return sum + min(d, math.MaxInt64-sum)
}

func (t *tries) show() api.Prediction {
	p := api.Prediction{Launches: t.launches, PredictedSeconds: t.predicted.Seconds(), MeasuredSeconds: t.measured.Seconds()}
	if t.launches > 0 {
		p.ErrorRatio = t.off / float64(t.launches)
	}
	return p
}

// of is a guest's part, made where there is none.
func (f *foresight) of(id fairshare.GuestID) *foreseen {
	g := f.guests[id]
	if g == nil {
		if f.guests == nil {
			f.guests = make(map[fairshare.GuestID]*foreseen)
		}
		g = &foreseen{models: duration.New(duration.Options{})}
		f.guests[id] = g
	}
	return g
}

// features are what a launch's duration depends on.
func features(s *ipc.Launch) duration.Features {
	return duration.Features{Blocks: uint64(s.Tasks), Threads: s.Threads, Input: s.InputBytes, Shared: s.SharedBytes}
}

// predict is how long a launch will run, 0 where that is unknown: by its kernel's
// model, or else as its executor has seen the kernel run on average.
func (f *foresight) predict(id fairshare.GuestID, s *ipc.Launch) time.Duration {
	if d := f.of(id).models.Predict(duration.Kernel(s.Kernel), features(s)); d > 0 {
		return d
	}
	return s.Predicted
}

// ended takes in a launch that has, of which predicted was expected.
func (f *foresight) ended(id fairshare.GuestID, s *ipc.Launch, predicted time.Duration) {
	if s.Failed || s.Used <= 0 {
		return
	}
	g := f.of(id)
	g.models.Observe(duration.Kernel(s.Kernel), features(s), s.Used)
	if predicted > 0 {
		g.add(predicted, s.Used)
		f.all.add(predicted, s.Used)
	}
}

// evicted takes in how long a launch took to leave.
func (f *foresight) evicted(id fairshare.GuestID, s *ipc.Launch, took time.Duration) {
	g := f.of(id)
	g.models.ObserveEviction(duration.Kernel(s.Kernel), took)
	g.cost.Add(took)
	f.cost.Add(min(took, mostTold))
}

// mostTold is what an eviction says about other guests' at most. It is some times what
// is assumed where nothing is known: how long a kernel takes to leave is up to its guest.
const mostTold = 4 * fairshare.AssumedCost

// evictionCost is what an eviction of a launch will cost: as its kernel's did, or
// else as any of its guest's did, or anybody's; 0 where none is known.
func (f *foresight) evictionCost(id fairshare.GuestID, s *ipc.Launch) time.Duration {
	g := f.of(id)
	if d := g.models.EvictionCost(duration.Kernel(s.Kernel)); d > 0 {
		return d
	}
	if d := g.cost.Mean(); d > 0 {
		return d
	}
	return f.cost.Mean()
}

// forget drops a guest's part.
func (f *foresight) forget(id fairshare.GuestID) { delete(f.guests, id) }
