package main

import (
	"fmt"
	"math"
	"slices"

	"vgpud/e2e/papers/parallel"
	"vgpud/gpu/soft/machine/warps"
)

// extent is how much is run.
type extent struct {
	runs    int // of figure 12, with events at other times
	samples int // events in one run of a background, about
	alone   int // events of which the time alone is averaged
	small   bool
}

// whole is what make bench-edge runs.
var whole = extent{runs: 1, samples: 150, alone: 64}

// lab has what experiments need.
type lab struct {
	x           extent
	backgrounds []*app // figure 11's
	events      []*app // figures 12's and 13's
	ping        *app
	alone       map[string]float64 // cycles of each background and event alone
}

func newLab(x extent) (*lab, error) {
	all := slices.Concat(backgrounds, networked, []source{pinging})
	apps, err := parallel.Map(len(all), func(i int) (*app, error) {
		s := all[i]
		if x.small {
			s.size, s.most = 0, 2
		}
		return record(s)
	})
	if err != nil {
		return nil, err
	}
	l := &lab{x: x, backgrounds: apps[:len(backgrounds)], events: apps[len(backgrounds) : len(all)-1], ping: apps[len(all)-1], alone: map[string]float64{}}
	cycles, err := parallel.Map(len(apps), func(i int) (float64, error) {
		if i < len(backgrounds) {
			r, err := warps.Run(warps.TableII, warps.Options{}, apps[i].grids, warps.Events{}, 0, seed)
			return float64(r.Cycles), err
		}
		r, err := warps.Run(warps.TableII, warps.Options{}, nil, warps.Events{Kernel: apps[i].grids[0].Kernel, Sources: 1}, x.alone, seed)
		return mean(r.Times), err
	})
	for i := range cycles {
		l.alone[apps[i].name] = cycles[i]
	}
	return l, err
}

// sharing are the backgrounds of figures 12 and 13.
func (l *lab) sharing() (all []*app) {
	for _, name := range shared {
		for _, a := range l.backgrounds {
			if a.name == name {
				all = append(all, a)
			}
		}
	}
	return all
}

// run executes a background beside events.
func (l *lab) run(bg, ev *app, o warps.Options, sources int, gap uint64, seed int) (warps.Result, error) {
	r, err := warps.Run(warps.TableII, o, bg.grids, warps.Events{Kernel: ev.grids[0].Kernel, Sources: sources, Gap: gap}, 0, uint64(seed))
	if err != nil {
		return r, fmt.Errorf("%s beside %s, %v: %w", ev.name, bg.name, o.Technique, err)
	}
	return r, nil
}

// gap is the mean time between events that are launched at random during a background.
func (l *lab) gap(bg *app) uint64 { return uint64(l.alone[bg.name]) / uint64(l.x.samples) }

// number is what means and quantiles are of.
type number interface{ ~uint64 | ~float64 }

// mean returns the mean, not a number of none.
func mean[T number](v []T) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, x := range v {
		sum += float64(x)
	}
	return sum / float64(len(v))
}

// tail returns the 99th percentile.
func tail(v []uint64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	return float64(s[(len(s)-1)*99/100])
}

// known drops what is not a number.
func known(v []float64) []float64 { return slices.DeleteFunc(slices.Clone(v), math.IsNaN) }
