package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"vgpud/accounting"
	"vgpud/e2e/papers/parallel"
)

// scheme is a scheduler in figure 11, with its accounting.
type scheme struct {
	name      string
	policy    string
	watch     accounting.Config
	published bool // by its authors, rather than as printed
	// off says that the authors left it switched off in what they published.
	off bool
	// weight of the program beside throttles of weight 1; zero: 1
	weight float64
}

// schemes are figure 11's. The last is the product's.
var schemes = []scheme{
	{name: "NEON"},
	{name: "NEON publ.", published: true},
	{name: "LoGA-CL", policy: "loga-cl", watch: loga},
	{name: "LoGA-CL publ.", policy: "loga-spans", watch: publishedLoga, published: true},
	{name: "LoGA", policy: "dfq-loga", watch: loga},
	{name: "LoGA publ.", policy: "loga", watch: publishedLoga, published: true, off: true},
	{name: "dfq", policy: "dfq", watch: ours},
}

// run carries an experiment out under the scheme, or under its accounting alone if schedule is not
// set.
func (s *scheme) run(e experiment, schedule bool) (*outcome, error) {
	switch {
	case s.policy == "" && s.published:
		return e.runPublishedNEON(schedule)
	case s.policy == "":
		return e.runNEON(schedule)
	}
	e.policy, e.watch = s.policy, s.watch
	if s.weight > 0 {
		e.tenants = slices.Clone(e.tenants)
		e.tenants[0].weight = s.weight
	}
	if !schedule {
		e.policy = "none"
	}
	return e.run()
}

// fairness is the result of a program beside throttles under one scheme.
type fairness struct {
	// turn is its turnaround, divided by that alone under the same accounting, and fair what that
	// should be.
	turn, fair float64
	// gpu is the program's GPU time over the mean of the throttles'.
	gpu float64
	// idle is the part of the time in which the GPU executed nothing.
	idle float64
}

// distance returns the distance of a ratio from 1.
func distance(ratio float64) float64 { return math.Abs(math.Log2(ratio)) }

// competition is figure 11 with other things to compare, by program and repetition. Scheme 0 is
// none.
type competition struct {
	apps    []application
	seeds   int
	schemes []scheme
	results [][]fairness // of program i/seeds, repetition i%seeds
}

// compete runs programs beside four throttles of 200 µs + 800 µs, under each scheme.
func compete(apps []application, schemes []scheme, seconds time.Duration, channels, seeds int) (*competition, error) {
	c := &competition{apps: apps, seeds: seeds, schemes: schemes}
	var err error
	c.results, err = parallel.Map(len(apps)*seeds, func(i int) ([]fairness, error) {
		return schedule(apps[i/seeds], schemes, seconds, channels, seedOf(i/seeds, i%seeds))
	})
	return c, err
}

// besideFour returns figure 11's guests: an application, which is tenant 0, and the throttles.
func besideFour(a application) []tenant {
	return beside(a, throttles(4, 200*time.Microsecond, 800*time.Microsecond))
}

// schedule runs one program beside the throttles.
func schedule(a application, schemes []scheme, seconds time.Duration, channels int, seed uint64) ([]fairness, error) {
	together := besideFour(a)
	all := experiment{tenants: together, policy: "none", length: seconds, channels: channels, seed: seed}
	only := all
	only.tenants = together[:1]

	// Fair is that the program gets as much GPU time as each throttle, out of what all five got
	// without scheduling.
	watched := all
	watched.watch = full(loga)
	free, err := watched.run()
	if err != nil {
		return nil, err
	}
	fair := func(alone *outcome) float64 {
		return turnaround(free, alone) * float64(free.accounted[0]) / (float64(totalOf(free.accounted)) / float64(len(together)))
	}
	found := func(out, alone *outcome) fairness {
		return fairness{
			turn: turnaround(out, alone), fair: fair(alone),
			gpu:  out.firstToOthers(),
			idle: float64(out.idle) / float64(out.length),
		}
	}
	unwatched, err := only.unwatched()
	if err != nil {
		return nil, err
	}
	results := []fairness{found(free, unwatched)}
	for i := range schemes {
		alone, err := schemes[i].run(only, false)
		if err != nil {
			return nil, err
		}
		out, err := schemes[i].run(all, true)
		if err != nil {
			return nil, err
		}
		results = append(results, found(out, alone))
	}
	return results, nil
}

// figure returns figure 11.
func (c *competition) figure() figure {
	f := figure{
		Number:  "11",
		Title:   "Turnaround beside four throttles of 200µs + 800µs sleep; 1 is alone under the same accounting",
		Paper:   "no numbers in the text. LoGA brings all programs closer to what is fair, mostly below it; NEON misses many, or slows the wrong one down",
		YLabel:  "normalised turnaround",
		Columns: []string{"program", "fair", "no scheduling"},
	}
	for i := range c.schemes {
		f.Columns = append(f.Columns, c.schemes[i].name)
	}
	for i := range c.apps {
		var rows []row
		for _, r := range c.results[i*c.seeds : (i+1)*c.seeds] {
			values := []float64{r[0].fair}
			for _, under := range r {
				values = append(values, under.turn)
			}
			rows = append(rows, row{Name: c.apps[i].name, Values: values})
		}
		f.Rows = append(f.Rows, together(rows))
	}
	f.Ours = "distance from fair, as a mean over the programs of |log2|: "
	for i, name := range f.Columns[2:] {
		if i > 0 {
			f.Ours += ", "
		}
		mean, _ := c.each(i, func(r fairness) float64 { return distance(r.turn / r.fair) })
		f.Ours += fmt.Sprintf("%s %.2f", name, mean)
	}
	return f
}

// each returns the mean of a value over all programs, and its standard deviation over the
// repetitions. Scheme 0 is none.
func (c *competition) each(scheme int, value func(fairness) float64) (mean, deviation float64) {
	var means []float64
	for seed := range c.seeds {
		var sum float64
		for i := range c.apps {
			sum += value(c.results[i*c.seeds+seed][scheme])
		}
		means = append(means, sum/float64(len(c.apps)))
	}
	return statistics(means)
}

// contest is a measure by which dfq must be ahead of what was published.
type contest struct {
	name string
	// values are by scheme, with their standard deviations if these are known.
	values, spread []float64
	level          bool // whether being no worse is enough
	// drawn says that each seed has loads of its own, the same under all schemes. Then spread is mostly
	// the loads', and says little about schemes' differences.
	drawn bool
}

// contests returns those of figure 11, and of the loads on which targets are checked.
func (c *competition) contests(found []sharing) []contest {
	all := []contest{
		{name: offContest, drawn: true},
		{name: "loads: the same, in the worst"},
		{name: idleLoads, drawn: true},
		{name: distanceContest},
		{name: "figure 11: turnaround's distance from Fair, |log2|"},
		{name: idleContest},
		{name: "figure 11: programs above Fair", level: true},
		{name: "figure 11: programs above Fair by more than 5 %", level: true},
	}
	add := func(i int, mean, deviation float64) {
		all[i].values, all[i].spread = append(all[i].values, mean), append(all[i].spread, deviation)
	}
	for i := range c.schemes {
		add(0, found[i].second.mean, spread(found[i].offs))
		add(1, found[i].second.worst, math.NaN()) // of all seeds
		add(2, 100*found[i].idle, 100*spread(found[i].idles))
		for j, value := range c.measures() {
			mean, deviation := c.each(1+i, value)
			add(3+j, mean, deviation)
		}
	}
	return all
}

// measures returns what schemes are compared by in figure 11, in the order of its contests.
func (c *competition) measures() []func(fairness) float64 {
	above := func(by float64) func(fairness) float64 {
		return func(r fairness) float64 {
			if r.turn > by*r.fair {
				return float64(len(c.apps)) // of which each mean has one in so many
			}
			return 0
		}
	}
	return []func(fairness) float64{
		func(r fairness) float64 { return distance(r.gpu) },
		func(r fairness) float64 { return distance(r.turn / r.fair) },
		func(r fairness) float64 { return 100 * r.idle },
		above(1), above(1.05),
	}
}

// behind returns the published schemes that dfq is not ahead of.
func (c *contest) behind() (names []string) {
	last := c.values[len(c.values)-1]
	for i := range schemes[:len(schemes)-1] {
		if v := c.values[i]; schemes[i].published && !(last < v || c.level && last == v) {
			names = append(names, schemes[i].name)
		}
	}
	return names
}

// shortfalls returns a line for each contest in which dfq is not ahead of all published schemes: by how
// much, and how that compares with the deviations of both, where these are the schemes' own.
func shortfalls(all []contest) string {
	var b strings.Builder
	for i := range all {
		c := &all[i]
		last := len(c.values) - 1
		for _, name := range c.behind() {
			j := slices.IndexFunc(schemes, func(s scheme) bool { return s.name == name })
			fmt.Fprintf(&b, "Not ahead of %s in %q: by %.3f", name, c.name, c.values[last]-c.values[j])
			if d := math.Hypot(c.spread[last], c.spread[j]); d > 0 && !c.drawn {
				fmt.Fprintf(&b, ", %.1f times the standard deviation of both together", (c.values[last]-c.values[j])/d)
			}
			b.WriteString(".\n")
		}
	}
	if b.Len() == 0 {
		return "dfq is ahead of all published schemes in all of these.\n"
	}
	return b.String()
}

// verdict returns the contest's last column.
func (c *contest) verdict() string {
	if names := c.behind(); len(names) > 0 {
		return "behind " + strings.Join(names, ", ")
	}
	return "ahead"
}

// released returns in how many contests dfq is ahead of the published code as it runs, and that
// code's names.
func released(all []contest) (ahead int, names []string) {
	on := func(name string) bool {
		return !slices.ContainsFunc(schemes, func(s scheme) bool { return s.name == name && s.off })
	}
	for _, s := range schemes {
		if s.published && !s.off {
			names = append(names, s.name)
		}
	}
	for i := range all {
		if !slices.ContainsFunc(all[i].behind(), on) {
			ahead++
		}
	}
	return ahead, names
}

// contestText returns the table of contests.
func contestText(all []contest) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "WHAT\t")
	for i := range schemes {
		fmt.Fprintf(w, "%s\t", schemes[i].name)
	}
	fmt.Fprintln(w, "DFQ IS")
	for i := range all {
		fmt.Fprintf(w, "%s\t", all[i].name)
		for j, v := range all[i].values {
			if d := all[i].spread[j]; math.IsNaN(d) {
				fmt.Fprintf(w, "%.3f\t", v)
			} else {
				fmt.Fprintf(w, "%.3f ±%.3f\t", v, d)
			}
		}
		fmt.Fprintln(w, all[i].verdict())
	}
	w.Flush()
	return b.String()
}

// weighings are dfq with other weights of the program. They show what it costs the program to leave
// less of the GPU idle.
func weighings() (all []scheme) {
	for _, w := range []float64{0.75, 1, 1.25, 1.5, 2} {
		all = append(all, scheme{name: fmt.Sprint(w), policy: "dfq", watch: ours, weight: w})
	}
	return all
}

// weighed returns the table of weighings.
func (c *competition) weighed() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "WEIGHT\tGPU TIME'S DISTANCE\tTURNAROUND'S DISTANCE\tGPU IDLE, PER CENT\tPROGRAMS ABOVE FAIR\tBY MORE THAN 5 %")
	for i := range c.schemes {
		fmt.Fprint(w, c.schemes[i].name)
		for _, value := range c.measures() {
			mean, deviation := c.each(1+i, value)
			fmt.Fprintf(w, "\t%.3f ±%.3f", mean, deviation)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	return b.String()
}
