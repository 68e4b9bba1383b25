// Command loga redoes the experiments of the LoGA paper in simulated time: figures 7 to 11 on the
// soft GPU's machine, shared by the daemon's scheduler, with the corpus of kernels in place of the
// paper's benchmarks, and the targets of accounting and fair queueing. It prints tables, and with
// -out writes them with a drawing of each figure. Its results are the same each time.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vgpud/clock"
	"vgpud/e2e/papers/parallel"
	"vgpud/gpu/corpus"
)

func main() {
	out := flag.String("out", "", "directory for the report and the figures; none: print only")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	parallel.Show(parallel.NewProgress("loga", os.Stderr, clock.Real{}, 10*time.Second))
	if err := reproduce(os.Stdout, *out); err != nil {
		fmt.Fprintln(os.Stderr, "loga:", err)
		os.Exit(1)
	}
}

// reproduce prints the report, and writes it to dir unless that is empty.
func reproduce(w io.Writer, dir string) error {
	apps, err := interpret(corpus.Trivial)
	if err != nil {
		return err
	}
	r, err := makeReport(apps, repeats)
	if err != nil {
		return err
	}
	for i := range r.figures {
		fmt.Fprintln(w, r.figures[i].Text())
	}
	fmt.Fprintln(w, targetText(r.reached))
	for i := range r.contests {
		fmt.Fprintln(w, r.contests[i].text())
	}
	fmt.Fprintln(w, r.weighed)
	fmt.Fprintln(w, r.frontier)
	if dir == "" {
		return nil
	}
	return r.write(dir)
}

// report is all results.
type report struct {
	figures  []figure
	reached  []target
	contests []group
	weighed  string // figure 11 under dfq, by the program's weight
	frontier string // figure 11's schemes beside what suspending the program alone comes to
}

// group is the contests if each guest has so many channels.
type group struct {
	channels int
	contests []contest
	free     sharing // the loads without a scheduler
}

// makeReport carries all experiments out, each so many times.
func makeReport(apps []application, seeds int) (*report, error) {
	const length = 10 * time.Second
	figures, err := allFigures(apps, seeds)
	if err != nil {
		return nil, err
	}
	loads := scenarios(apps, []int{1, 2, 3, 4, 6, 8, 12, 16}, seeds)
	r := &report{}
	if r.reached, err = targets(loads, length); err != nil {
		return nil, err
	}
	free, err := unshared(loads, length/2)
	if err != nil {
		return nil, err
	}
	for _, channels := range []int{cudaChannels, 1} {
		found, err := shareAll(loads, length/2, channels)
		if err != nil {
			return nil, err
		}
		c, err := compete(apps, schemes, length/2, channels, seeds)
		if err != nil {
			return nil, fmt.Errorf("figure 11: %w", err)
		}
		if channels == cudaChannels {
			figures = append(figures, c.figure())
		}
		for i := range found {
			r.reached = append(r.reached, found[i].second)
		}
		r.contests = append(r.contests, group{channels, c.contests(found), free})
	}
	byWeight, err := compete(apps, weighings(), length/2, cudaChannels, seeds)
	if err != nil {
		return nil, fmt.Errorf("figure 11 by weight: %w", err)
	}
	r.weighed = byWeight.weighed()
	gated, err := gate(apps, length/2, seeds)
	if err != nil {
		return nil, fmt.Errorf("figure 11 with the program suspended for a fixed part: %w", err)
	}
	r.frontier = gated.text(r.contests)
	r.figures = figures
	r.reached = append(r.reached, figureTargets(figures)...)
	return r, nil
}

// text returns a group's contests.
func (g *group) text() string {
	ahead, names := released(g.contests)
	return fmt.Sprintf("Channels of each guest: %d.\n%s\nOf the published code as it runs (%s), dfq is ahead in %d of %d.\n%s%s",
		g.channels, contestText(g.contests), strings.Join(names, ", "), ahead, len(g.contests), shortfalls(g.contests), g.price())
}

// price returns what holding shares costs in idle time: suspended guests leave the GPU idle.
func (g *group) price() string {
	off, idle := g.values(offContest), g.values(idleLoads)
	var b strings.Builder
	fmt.Fprintf(&b, "The loads without a scheduler: %.3f points off, GPU idle for %.3f %%. What a point less costs, in points of idle time:", g.free.second.mean, 100*g.free.idle)
	for i := range schemes {
		if less := g.free.second.mean - off[i]; less > 0 {
			fmt.Fprintf(&b, " %s %.3f,", schemes[i].name, (idle[i]-100*g.free.idle)/less)
		}
	}
	return strings.TrimSuffix(b.String(), ",") + "\n"
}

// allFigures returns figures 7 to 10.
func allFigures(apps []application, seeds int) ([]figure, error) {
	const seconds = 3 * time.Second
	makers := []func() (figure, error){
		func() (figure, error) {
			return overhead(apps, "7a", 10*time.Microsecond, seconds, seeds, "NEON +11.4 % in the mean, at worst +23.4 %; LoGA not above 0")
		},
		func() (figure, error) {
			return overhead(apps, "7b", 100*time.Microsecond, seconds, seeds, "NEON +7.6 % in the mean; LoGA +0.7 %")
		},
		func() (figure, error) { return byThrottles(apps, []int{1, 2, 4, 8, 12, 16, 20}, 2*seconds, seeds) },
		func() (figure, error) { return kernelLength(seconds, seeds) },
		func() (figure, error) { return load(seconds, seeds) },
	}
	var figures []figure
	for _, make := range makers {
		f, err := make()
		if err != nil {
			return nil, fmt.Errorf("figure %s: %w", f.Number, err)
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// write writes the report and the drawings into dir.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(reportHead)
	b.WriteString("## Targets\n\n```\n" + targetText(r.reached) + "```\n\n")
	b.WriteString("## Against what was published\n\n" + contestHead)
	for i := range r.contests {
		b.WriteString("\n```\n" + r.contests[i].text() + "```\n")
	}
	b.WriteString("\n" + weighedHead + "\n```\n" + r.weighed + "```\n")
	b.WriteString("\n" + frontierHead + "\n```\n" + r.frontier + "```\n")
	for i := range r.figures {
		f := &r.figures[i]
		name := "loga-figure" + f.Number + ".svg"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(f.SVG()), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n## Figure %s\n\n![%s](%s)\n\n```\n%s```\n", f.Number, f.Title, name, f.Text())
	}
	return os.WriteFile(filepath.Join(dir, "loga.md"), []byte(b.String()), 0o644)
}

const contestHead = `Fair is what LoGA §5.5 calls so. A program's GPU time is compared with the throttles' mean. That its turnaround is fair and its GPU
time is the throttles' cannot both be: these use less than their parts while it waits, and Fair takes it for granted that
somebody always uses the GPU. Each repetition has loads of its own, the same for all schemes, so that most of their deviation is theirs.
`

// weighedHead explains the table of weighings.
const weighedHead = `Figure 11 once more under dfq, with other weights of the program: what a smaller idle time costs.
`

// frontierHead explains the table of the frontier.
var frontierHead = fmt.Sprintf(`How near the program's GPU time is to the throttles', and how long the GPU is idle, depend on each other: while the program is
suspended the throttles leave a fifth of the GPU idle, and while it is not they wait for its kernels, which run to their end. The last
column is without any scheduler: the program is suspended for a fixed part of each %v, with which it gets as many times the throttles'
GPU time as the distance says, each program the same.
`, cycle)

var reportHead = fmt.Sprintf(`# LoGA's experiments, redone in simulated time

Made by `+"`make bench-loga`"+`, the same each time. The GPU is the soft GPU's machine: exclusive, round-robin, without
preemption (LoGA §2.2). Programs are the corpus' kernels at their smallest size, with the lengths that the soft GPU's cost
model gives them. In figures 7, 8 and 11 a program waits for each of its launches, and works on the host between two rounds of
them for up to as long as they took, drawn from its name. Each experiment is done %d times, with other seeds; shown are the
means and the standard deviations.

The daemon's scheduler shares the GPU, and its sampler polls in simulated time. What a run shows begins after %v, when the
scheduler knows the guests: with 12 channels LoGA's first rounds would otherwise be much of it.

LoGA and NEON are shown twice: as the papers print their rules, and as LoGA's authors published them ("publ.":
github.com/jkehne/loga, neon_module/neon_event.c and neon_sampling.c). Each guest has %d channels (LoGA §5.1) but where it is said to have one, and LoGA polls
for 1 ms and then does not for 5 ms for each channel, NEON samples for 1 ms and lets all run for 5 ms for each. The published
LoGA goes by the mean time between switches, which the paper calls LoGA-CL; what it calls LoGA goes by GPU time, and is a line
of the published code that is switched off. Ours is accounting as the daemon has it, and dfq.

Reading a register takes %v, and a poll reads two, one after the other: the engine's status, and the entry of the channel
that is on it, which follows the truth %v later (§5.4). While somebody polls, a program's doorbell waits for the read that is
under way. In columns that are "ideal", reading takes no time and nothing follows later. What NEON's trapping of submissions
costs, and how long NEON takes to suspend, is not in the model, in its favour.

`, repeats, warmUp, cudaChannels, readTime, skew)
