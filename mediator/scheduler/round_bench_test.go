package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/accounting"
	"vgpud/fairshare/quota"
	"vgpud/mediator/ipc"
)

// roundMix is what the guests of a BenchmarkRound do.
type roundMix struct {
	name, policy string
	// working is how many of the guests compute; below 0, all of them do.
	working int
	// queued reports whether each guest has a launch in a slot, contexts how many contexts it has.
	queued   bool
	contexts int
	// bounded reports whether guests have caps, guarantees and budgets.
	bounded bool
	// byExecutors reports whether the executors' own records are what is accounted by.
	byExecutors bool
}

var roundMixes = []roundMix{
	{name: "idle", policy: "dfq", contexts: 1},
	{name: "one", policy: "dfq", contexts: 1, working: 1},
	{name: "busy", policy: "dfq", contexts: 1, working: -1},
	{name: "bounded", policy: "dfq", contexts: 1, working: -1, bounded: true},
	{name: "recorded", policy: "dfq", contexts: 1, working: -1, byExecutors: true},
	{name: "queued-free", policy: "dfq", contexts: 1, working: -1, queued: true},
	{name: "queued", policy: "hpf", contexts: 1, working: -1, queued: true},
	{name: "contexts", policy: "dfq", contexts: ipc.MaxContexts, working: -1},
}

// crowd is a scene of n guests that do what a mix says.
func (m *roundMix) crowd(t testing.TB, n int) *scene {
	s := newScene(t)
	s.sched.gpu.ByExecutors = m.byExecutors
	groups := make([]uint16, m.contexts)
	for i := range n {
		for j := range groups {
			groups[j] = uint16(1 + i*len(groups) + j)
		}
		o := GuestOptions{Terms: ipc.Terms{Weight: 1 + float64(i%3)}}
		if m.bounded {
			o.Terms.Cap, o.Terms.Guarantee = 0.5, 0.25/float64(n)
			o.Budget = &spentAfter{limit: 1 << 62, then: quota.Throttled}
		}
		g := s.joinWith(0, o, groups...)
		if m.working < 0 || i < m.working {
			for j := range groups {
				g.o.Page.Context(j).SetBacklog(true)
			}
		}
		if m.queued {
			s.submit(g, ipc.Launch{Form: 1, Evictable: true})
		}
	}
	if err := s.sched.SetPolicy(m.policy); err != nil {
		t.Fatal(err)
	}
	s.sched.Changed(0)
	return s
}

// round ends a polling phase, in which the next working guests used the GPU for 100 µs each, and
// the quiet phase after it.
func (m *roundMix) round(s *scene, number int) {
	working := m.working
	if working < 0 {
		working = len(s.guests)
	}
	used := s.used[:0]
	for i := range min(working, 10) {
		g := s.guests[(10*number+i)%working]
		id := g.contextGroup(0)
		if !m.byExecutors {
			group, _ := g.o.Page.Context(0).Group()
			id = accounting.GroupID(group)
		}
		used = append(used, busy(id, ms/10))
	}
	slices.SortFunc(used, func(a, b accounting.GroupTime) int { return cmp.Compare(a.Group, b.Group) })
	s.used = used
	if m.byExecutors {
		s.sched.Work(s.clock.Now(), func(*accounting.Work) {})
	}
	s.poll(4*ms, s.used...)
	s.quiet(20*ms, 0)
}

// processorTime returns the processor time that the calling goroutine's thread has used. Unlike a
// benchmark's own time it is nearly the same on a busy machine.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRound measures what the scheduler computes in a whole round: at the end of its polling
// phase, and at the end of its quiet phase.
func BenchmarkRound(b *testing.B) {
	for _, mix := range roundMixes {
		for _, n := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", mix.name, n), func(b *testing.B) {
				s := mix.crowd(b, n)
				b.ReportAllocs()
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				number, before := 0, processorTime(b)
				least := time.Duration(math.MaxInt64)
				for b.Loop() {
					begun := time.Now()
					mix.round(s, number)
					least = min(least, time.Since(begun))
					number++
				}
				b.ReportMetric(float64(least), "least-ns/op")
				b.ReportMetric(float64(processorTime(b)-before)/float64(number), "cpu-ns/op")
			})
		}
	}
}
