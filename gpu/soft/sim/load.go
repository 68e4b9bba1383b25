package sim

import (
	"math/rand/v2"
	"time"

	"vgpud/gpu/soft/machine"
)

// Throttle is LoGA's load generator (§5.2): kernels of a given length, one after the other, each
// followed by a sleep of a given length. Lengths vary by one per cent each way, since no two runs
// of a kernel take equally long. Without sleep it keeps four commands submitted, so that it
// saturates the GPU.
func Throttle(name string, length, sleep time.Duration) Load {
	depth := 1
	if sleep <= 0 {
		depth = 4
	}
	return Load{Name: name, Depth: depth, Next: func(r *rand.Rand) (machine.Work, time.Duration) {
		return machine.Work{Duration: vary(r, length)}, vary(r, sleep)
	}}
}

// Duty returns a Throttle that alone loads the GPU by the given fraction, at most 1.
func Duty(name string, length time.Duration, load float64) Load {
	if load >= 1 {
		return Throttle(name, length, 0)
	}
	return Throttle(name, length, time.Duration(float64(length)*(1-load)/load))
}

// Cycle returns a Throttle that launches one kernel in each period (LoGA §5.4): it sleeps for the
// rest of the period after the kernel's length, whatever else runs.
func Cycle(name string, length, period time.Duration) Load {
	return Throttle(name, length, max(period-length, 0))
}

// Trace repeats the given lengths and keeps depth commands submitted, like a program whose kernels
// are known.
func Trace(name string, depth int, lengths []time.Duration) Load {
	next := 0
	return Load{Name: name, Depth: depth, Next: func(r *rand.Rand) (machine.Work, time.Duration) {
		d := lengths[next%len(lengths)]
		next++
		return machine.Work{Duration: vary(r, d)}, 0
	}}
}

func vary(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.99 + 0.02*r.Float64()))
}
