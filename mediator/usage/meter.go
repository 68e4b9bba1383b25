package usage

import (
	"math"
	"time"
)

// Mark says up to which sums a guest's usage is recorded.
type Mark struct {
	Life                         string
	Used, Suspended, Unaccounted time.Duration
	Kernels, Evictions           uint64
}

// Bounds of what a guest can have used in some time, since its own processes count kernels and
// evictions.
const (
	maxEventsPerSecond = 2_000_000
	maxMemoryBytes     = 1 << 50
	maxWatts           = 100_000
)

// meter turns samples into what is new since those before. It is pure.
type meter struct {
	lives map[string]*life
}

// life is a guest as last sampled.
type life struct {
	mark Mark
	at   time.Duration // when it was last sampled, on the monotonic clock
	// kib and millijoules are what of memory and energy is less than a unit yet.
	kib, millijoules float64
	memoryBytes      uint64
}

// restore begins with the marks of an earlier daemon.
func (m *meter) restore(marks []Mark) {
	m.lives = make(map[string]*life, len(marks))
	for _, k := range marks {
		m.lives[k.Life] = &life{mark: k, at: unknownTime}
	}
}

// unknownTime is the time of a sample that an earlier daemon took.
const unknownTime = time.Duration(math.MinInt64)

// restored reports whether the marks of an earlier daemon are known.
func (m *meter) restored() bool { return m.lives != nil }

// known reports whether a guest was sampled, by this daemon or by an earlier one.
func (m *meter) known(id string) bool { return m.lives[id] != nil }

// skip takes a guest's usage up to now as recorded elsewhere.
func (m *meter) skip(now time.Duration, s *Sample) Mark {
	m.lives[s.Life] = &life{mark: markOf(s), at: now, memoryBytes: s.MemoryBytes}
	return markOf(s)
}

// mark returns up to which sums a guest was sampled.
func (m *meter) mark(id string) (k Mark, ok bool) {
	if l := m.lives[id]; l != nil {
		return l.mark, true
	}
	return k, false
}

// observe returns what a guest has used since it was last sampled. A guest that was not sampled yet
// has used all of its sums.
func (m *meter) observe(now time.Duration, s *Sample) (Sums, Mark) {
	l := m.lives[s.Life]
	if l == nil {
		l = &life{mark: Mark{Life: s.Life}, at: unknownTime}
		m.lives[s.Life] = l
	}
	// Microseconds are those between the two sums rounded down, so that what is below one is not
	// lost.
	used := micros(s.Used) - micros(l.mark.Used)
	sums := Sums{
		GPUMicros:         max(used, 0),
		SuspendedMicros:   max(micros(s.Suspended)-micros(l.mark.Suspended), 0),
		UnaccountedMicros: max(micros(s.Unaccounted)-micros(l.mark.Unaccounted), 0),
		Kernels:           newEvents(s.Kernels, l.mark.Kernels),
		Evictions:         newEvents(s.Evictions, l.mark.Evictions),
	}
	if l.at != unknownTime {
		since := max(now-l.at, 0).Seconds()
		most := int64(since*maxEventsPerSecond) + maxEventsPerSecond
		sums.Kernels, sums.Evictions = min(sums.Kernels, most), min(sums.Evictions, most)
		// Between two samples the guest is taken to have had the mean of both.
		mean := (float64(min(l.memoryBytes, maxMemoryBytes)) + float64(min(s.MemoryBytes, maxMemoryBytes))) / 2
		sums.MemoryKiBSeconds = whole(&l.kib, mean/1024*since)
	}
	if s.Watts > 0 && s.Watts <= maxWatts {
		sums.EnergyKnown = true
		sums.EnergyMillijoules = whole(&l.millijoules, s.Watts*float64(sums.GPUMicros)/1000)
	}
	next := markOf(s)
	l.mark = Mark{
		Life: s.Life, Used: max(next.Used, l.mark.Used), Suspended: max(next.Suspended, l.mark.Suspended),
		Unaccounted: max(next.Unaccounted, l.mark.Unaccounted),
		Kernels:     max(next.Kernels, l.mark.Kernels), Evictions: max(next.Evictions, l.mark.Evictions),
	}
	l.at, l.memoryBytes = now, s.MemoryBytes
	return sums, l.mark
}

// forget drops a guest that has ended.
func (m *meter) forget(id string) { delete(m.lives, id) }

func markOf(s *Sample) Mark {
	return Mark{Life: s.Life, Used: s.Used, Suspended: s.Suspended, Unaccounted: s.Unaccounted, Kernels: s.Kernels, Evictions: s.Evictions}
}

func micros(d time.Duration) int64 { return int64(max(d, 0) / time.Microsecond) }

// newEvents returns how many events are new.
func newEvents(now, before uint64) int64 {
	if now <= before {
		return 0
	}
	return int64(min(now-before, math.MaxInt64/4))
}

// whole adds to a rest, and takes the whole units out of it.
func whole(rest *float64, add float64) int64 {
	*rest += add
	n := math.Floor(*rest)
	*rest -= n
	return int64(n)
}
