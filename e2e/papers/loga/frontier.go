package main

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"vgpud/e2e/papers/parallel"
	"vgpud/fairshare"
)

// The frontier is what figure 11 comes to if only the program is suspended, for a fixed part of each
// cycle, without any measuring or deciding. A scheduler that suspends guests can choose the part for
// each program, but little else: how long the GPU is idle follows from how much the program gets.

// cycle is how often the program is suspended.
const cycle = 100 * time.Millisecond

// parts of a cycle in which the program is not suspended.
var parts = []float64{0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8, 1}

// runGated carries the experiment out without a scheduler. The first tenant is suspended but for a
// part of each cycle.
func (e experiment) runGated(part float64) (*outcome, error) {
	e.policy = "none"
	r, err := e.begin(fairshare.Options{})
	if err != nil {
		return nil, err
	}
	g, open := r.sim.Guests()[0], time.Duration(part*float64(cycle))
	for r.sim.Now() < e.length {
		begun := r.sim.Now()
		g.SetSuspended(false)
		r.advance(begun + open)
		g.SetSuspended(open < cycle)
		r.advance(begun + cycle)
	}
	return r.outcome(), nil
}

// frontier holds the results of all programs, by part.
type frontier [][]fairness

// gate runs all programs beside figure 11's throttles, for each part.
func gate(apps []application, seconds time.Duration, seeds int) (frontier, error) {
	return parallel.Map(len(apps)*seeds, func(i int) (results []fairness, err error) {
		e := experiment{tenants: besideFour(apps[i/seeds]), length: seconds, seed: seedOf(i/seeds, i%seeds)}
		for _, part := range parts {
			out, err := e.runGated(part)
			if err != nil {
				return nil, err
			}
			results = append(results, fairness{gpu: out.firstToOthers(), idle: float64(out.idle) / float64(out.length)})
		}
		return results, nil
	})
}

// idleAt returns the part of the time in which the GPU is idle, as a mean over the programs, if the
// GPU time of each is 2 to the power of distance times the throttles'. A program that does not get
// that much, or not that little, gets what is nearest.
func (f frontier) idleAt(distance float64) float64 {
	var sum float64
	for _, results := range f {
		x, idle := math.Log2(results[0].gpu), results[0].idle
		for _, r := range results[1:] {
			next := math.Log2(r.gpu)
			if x >= distance {
				break
			}
			if next > distance && next > x {
				idle += (r.idle - idle) * (distance - x) / (next - x)
				break
			}
			x, idle = next, r.idle
		}
		sum += idle
	}
	return sum / float64(len(f))
}

// The contests in which what is gained in one is lost in another.
const (
	offContest      = "loads: share over any second, points off, mean"
	idleLoads       = "loads: GPU idle, per cent, mean"
	distanceContest = "figure 11: GPU time's distance from Fair, |log2|"
	idleContest     = "figure 11: GPU idle, per cent"
)

// values returns the values of the contest with a name.
func (g *group) values(name string) []float64 {
	for i := range g.contests {
		if g.contests[i].name == name {
			return g.contests[i].values
		}
	}
	panic("loga: no contest " + name)
}

// conclusion returns a sentence: some scheme can, or can't, be as near as the nearest published one
// and leave the GPU idle for no longer than the busiest, which is idle for that many per cent of
// the time.
func (f frontier) conclusion(nearest, busiest float64, scheme string) string {
	least, can := 100*f.idleAt(nearest), "could"
	if least >= busiest {
		can = "can't"
	}
	return fmt.Sprintf(
		"as near as the nearest published scheme (%.3f) the GPU is idle for %.3f %% of the time, and under the one with the least idle time for %.3f %%. %s %s be ahead in both.",
		nearest, least, busiest, scheme, can)
}

// text returns the table of published schemes and dfq beside the frontier, and what follows from it
// for dfq.
func (f frontier) text(groups []group) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "CHANNELS\tSCHEME\tGPU TIME'S DISTANCE\tGPU IDLE, PER CENT\tIDLE AT THAT DISTANCE, IF ONLY THE PROGRAM IS SUSPENDED")
	var conclusions []string
	nearestOfAll, busiestOfAll := math.Inf(1), math.Inf(1)
	for i := range groups {
		g := &groups[i]
		distances, idles := g.values(distanceContest), g.values(idleContest)
		nearest, busiest := math.Inf(1), math.Inf(1) // of those that are published
		for j := range schemes {
			if ours := j == len(schemes)-1; !schemes[j].published && !ours {
				continue
			} else if !ours {
				nearest, busiest = min(nearest, distances[j]), min(busiest, idles[j])
			}
			fmt.Fprintf(w, "%d\t%s\t%.3f\t%.3f\t%.3f\n", g.channels, schemes[j].name, distances[j], idles[j], 100*f.idleAt(distances[j]))
		}
		conclusions = append(conclusions, fmt.Sprintf("With %d channels: ", g.channels)+f.conclusion(nearest, busiest, "A scheme that suspends only the program"))
		nearestOfAll, busiestOfAll = min(nearestOfAll, nearest), min(busiestOfAll, busiest)
	}
	if len(groups) > 1 {
		conclusions = append(conclusions, "With any number of channels: "+f.conclusion(nearestOfAll, busiestOfAll, "A scheme that does the same for each number of channels, as dfq does, and suspends only the program"))
	}
	w.Flush()
	return b.String() + "\n" + strings.Join(conclusions, "\n") + "\n"
}
