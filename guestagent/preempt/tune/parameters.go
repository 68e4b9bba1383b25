package tune

import "time"

// Parameters say what a form should achieve. Zero values mean the defaults named with each.
type Parameters struct {
	// Overhead bounds the additional cost of a form relative to the original; default 0.02. No form
	// that was measured to cost more is chosen. FLEP tunes to less than 4 % (§4.1).
	Overhead float64
	// Free is the additional relative cost up to which a form counts as free; default 0.005, and
	// never more than Overhead. Among free forms the one that leaves the soonest is chosen; a
	// speed-up counts as 0.
	Free float64
	// Latency is the time within which a kernel should leave the GPU when asked; default 500 µs.
	// Kernels that end by themselves in that time stay as they are.
	Latency time.Duration
	// Suspension is how long the hardware takes to suspend a context; default 360 µs, as measured
	// on an H100. If a single task takes longer, a block runs one task per check, and
	// [Report.Suspend] says that suspending is better.
	Suspension time.Duration
	// Suspends is the same where the hardware is known to suspend contexts by itself; 0 elsewhere. A
	// kernel whose tasks take longer is left to it.
	Suspends time.Duration
	// AtOnce has the first launch of a class go in the persistent form, although nothing is known of its
	// cost: for kernels that are told to leave where nothing else takes them off the GPU. A program that
	// launches a kernel once would otherwise keep the GPU until that has ended.
	AtOnce bool
	// Drain is the GPU time of a block of up to 256 threads that starts, finds that it must leave
	// and records itself as skipped; default 1 ns, as measured on an H100 (481 µs for the half of
	// 1,048,576 blocks that remained at the median). A block with more threads costs more, in
	// proportion: 4 ns with 1024.
	Drain time.Duration
	// Reaction is the time from setting the evict word until running blocks see it and the last has
	// left, without the tasks themselves; default 8 µs, as measured on an H100 for tasks of 1 µs.
	Reaction time.Duration
	// Measure is how many launches first measure a candidate; default 4.
	Measure int
	// Again is the number of launches, for each that was spent on measuring, after which all is
	// measured again; default 64.
	Again int
	// Tie is the ratio by which costs must differ to count as different; default 0.005. Among
	// equals the one that leaves sooner is chosen, and a choice once made is kept. A form that was
	// dropped because it broke a bound on its cost must meet it by as much, or more after each
	// further time, to be chosen again.
	Tie float64
}

// Defaults of Parameters that others use, too.
const (
	DefaultLatency  = 500 * time.Microsecond
	DefaultOverhead = 0.02
	FreeOverhead    = 0.005
)

// withDefaults replaces zeros by defaults.
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
	setFloat(&p.Free, FreeOverhead)
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
