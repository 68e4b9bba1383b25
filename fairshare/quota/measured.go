package quota

import (
	"math"
	"time"
)

// Measured is GPU time that was measured in two ways.
type Measured struct {
	// Charged is the time that accounting charged. Where the GPU is looked at only now and then, it
	// is an estimate.
	Charged time.Duration `json:"used"`
	// Executed is the time from kernels' starts to their ends. It includes others' turns on the GPU
	// meanwhile, and lacks kernels that have not ended, or that nobody timed.
	Executed time.Duration `json:"executed,omitempty"`
	// Variance bounds the variance of Charged, in square nanoseconds: see [Sampled].
	Variance float64 `json:"variance,omitempty"`
}

// Sampled returns use that was estimated from looks at the GPU, one at some instant of each interval:
// a guest that executed for the part p of an interval is seen to do so with probability p, so its
// estimate has the variance p(1-p)·interval². Looks that last are better than that. part is the mean
// of p, at which the sum is largest if p varies.
func Sampled(charged, interval time.Duration, part float64) Measured {
	m := Measured{Charged: charged}
	m.Variance = max(float64(charged), 0) * float64(interval) * max(1-part, 0)
	return m
}

// standardErrors is how much more than it was charged a guest may have used, in standard errors.
const standardErrors = 3

// Most returns what may have been used at most: what was charged, or what was executed as far as the
// error of the charge can explain the difference. Without turns within kernels, Executed is exact and
// the charge's error grows with the root of the time; with them, the charge is the better one.
func (m Measured) Most() time.Duration {
	doubt := min(standardErrors*math.Sqrt(max(m.Variance, 0)), float64(maxUsed-min(m.Charged, maxUsed)))
	return max(m.Charged, min(m.Executed, m.Charged+time.Duration(doubt)))
}

// Add returns the sum of what was used at different times, or by different guests.
func (m Measured) Add(o Measured) Measured {
	return Measured{
		Charged: addClamped(m.Charged, o.Charged), Executed: addClamped(m.Executed, o.Executed), Variance: min(m.Variance+max(o.Variance, 0), maxVariance),
	}
}

// Since returns what was used since an earlier total. Totals that went back have not changed.
func (m Measured) Since(o Measured) Measured {
	return Measured{
		Charged: max(m.Charged-o.Charged, 0), Executed: max(m.Executed-o.Executed, 0), Variance: max(m.Variance-o.Variance, 0),
	}
}

// Max returns the larger of two totals, each sum for itself.
func (m Measured) Max(o Measured) Measured {
	return Measured{Charged: max(m.Charged, o.Charged), Executed: max(m.Executed, o.Executed), Variance: max(m.Variance, o.Variance)}
}

// maxUsed and maxVariance bound sums, so that they don't overflow.
const (
	maxUsed     = 1 << 62
	maxVariance = 1 << 124
)

// addClamped returns a plus the positive part of b, or maxUsed if that is less.
func addClamped(a, b time.Duration) time.Duration { return a + min(max(b, 0), maxUsed-min(a, maxUsed)) }
