package main

import (
	"vgpud/e2e/papers/parallel"
	"vgpud/gpu/soft/machine/warps"
)

// techniques are figure 13's, then ours.
var techniques = []struct {
	name string
	o    warps.Options
}{
	{"draining", warps.Options{Technique: warps.Drain}},
	{"reservation", warps.Options{Technique: warps.Reserve}},
	{"preemption", warps.Options{Technique: warps.Preempt, Victims: warps.Ready, Flush: warps.All}},
	{"reservation by rate", warps.Options{Technique: warps.Adaptive, Victims: warps.Ready, Flush: warps.All}},
	{"in order", warps.Options{Technique: warps.Ordered}},
}

const (
	byDraining = iota
	byReservation
	byPreemption
	byRate
)

// load is how many events overlap (§VI.D).
type load struct {
	name string
	of   func(ev *app) int
}

var loads = []load{
	{"low", func(*app) int { return 2 }},
	{"high", func(ev *app) int {
		if ev.name == "MemC" || ev.name == "IPSec" {
			return 16
		}
		return 32
	}},
}

const (
	low = iota
	high
)

// slowdown is how much longer kernels take than alone, in one run.
type slowdown struct {
	event, bg float64
	events    int
	result    warps.Result
}

// antt is the average normalised turnaround time of all kernels of the run: its events and its
// background.
func (s *slowdown) antt() float64 {
	if s.events == 0 {
		return s.bg
	}
	return (s.event*float64(s.events) + s.bg) / float64(s.events+1)
}

// besides is what figure 13 is drawn from: by load, technique and pair.
type besides struct {
	pairs [][2]string // background and event
	of    [2][][]slowdown
}

// beside runs events beside backgrounds.
func (l *lab) beside() (*besides, error) {
	r := &besides{}
	bgs := l.sharing()
	for _, bg := range bgs {
		for _, ev := range l.events {
			r.pairs = append(r.pairs, [2]string{bg.name, ev.name})
		}
	}
	n, nt := len(r.pairs), len(techniques)
	all, err := parallel.Map(len(loads)*nt*n, func(i int) (s slowdown, err error) {
		bg, ev := bgs[i%n/len(l.events)], l.events[i%n%len(l.events)]
		s.result, err = l.run(bg, ev, techniques[i/n%nt].o, loads[i/n/nt].of(ev), 0, seed)
		s.event, s.bg = mean(s.result.Times)/l.alone[ev.name], float64(s.result.Cycles)/l.alone[bg.name]
		s.events = len(s.result.Times)
		return s, err
	})
	if err != nil {
		return nil, err
	}
	for i := range loads {
		for t := range techniques {
			r.of[i] = append(r.of[i], all[(i*nt+t)*n:][:n])
		}
	}
	return r, nil
}

// mean returns the mean of a value over the pairs.
func (r *besides) mean(load, technique int, value func(*slowdown) float64) float64 {
	var each []float64
	for i := range r.of[load][technique] {
		each = append(each, value(&r.of[load][technique][i]))
	}
	return mean(known(each))
}

func ofEvents(s *slowdown) float64     { return s.event }
func ofBackground(s *slowdown) float64 { return s.bg }
