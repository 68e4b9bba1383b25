package tune

import "time"

// Parameters say what is wanted of a form. Zero values stand for the defaults named beside them.
type Parameters struct {
	// Overhead bounds what a form may cost more than the original, as a ratio: 0.02. No form that was measured to cost
	// more is chosen. FLEP tunes to less than 4 % (§4.1).
	Overhead float64
	// Free is what a form may cost more than the original and count as free, as a ratio: 0.005, and never more than
	// Overhead. Of the forms that are free the one that leaves the soonest is chosen; a speed-up counts as 0.
	Free float64
	// Latency is within what time a kernel should leave the GPU when asked: 500 µs. Kernels that end by themselves in
	// that time are left as they are.
	Latency time.Duration
	// Suspension is how long the hardware takes to suspend a context by itself: 360 µs, as measured on an H100. Where
	// a single task takes longer, a block runs one task a look and no more, and [Report.Suspend] says that the
	// hardware's way is the better one.
	Suspension time.Duration
	// Drain is what a block of up to 256 threads costs that starts, finds that it must leave and notes itself as skipped, of the
	// whole GPU's time: 1 ns, from an H100 (481 µs for the half of 1,048,576 blocks that were left at the median). One with more
	// threads costs more, in proportion: 4 ns with 1024.
	Drain time.Duration
	// Reaction is the time from the word's being set until running blocks see it, and the last is gone, without the
	// tasks themselves: 8 µs, as measured on an H100 for tasks of 1 µs.
	Reaction time.Duration
	// Measure is how many launches a candidate is measured by at first: 4.
	Measure int
	// Again is after how many launches, for each that was spent on measuring, all is measured again: 64.
	Again int
	// Tie is by which ratio costs must differ to count as different: 0.005. Of equals, the one that leaves sooner is
	// chosen, and a choice once made is kept. A form that was given up because it broke a bound on its cost must keep
	// it by as much, or more after each further time, to be chosen again.
	Tie float64
}

// What is wanted where nothing else is said.
const (
	DefaultLatency  = 500 * time.Microsecond
	DefaultOverhead = 0.02
)

// withDefaults fills in what is zero.
func (p Parameters) withDefaults() Parameters {
	setFloat := func(f *float64, v float64) {
		if *f <= 0 {
			*f = v
		}
	}
	setTime := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	setInt := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	setFloat(&p.Overhead, DefaultOverhead)
	setFloat(&p.Free, 0.005)
	p.Free = min(p.Free, p.Overhead)
	setFloat(&p.Tie, 0.005)
	setTime(&p.Latency, DefaultLatency)
	setTime(&p.Suspension, 360*time.Microsecond)
	setTime(&p.Drain, time.Nanosecond)
	setTime(&p.Reaction, 8*time.Microsecond)
	setInt(&p.Measure, 4)
	setInt(&p.Again, 64)
	return p
}

// drainThreads is how many threads the blocks have that Drain is of.
const drainThreads = 256

// of returns p for blocks of that many threads.
func (p *Parameters) of(threads uint32) *Parameters {
	q := *p
	q.Drain = q.Drain * time.Duration(max(threads, drainThreads)) / drainThreads
	return &q
}
