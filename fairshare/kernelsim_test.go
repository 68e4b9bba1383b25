package fairshare_test

import (
	"fmt"
	"math"
	"slices"
	"time"

	"vgpud/fairshare"
)

// kernel is a launch on kernelSim.
type kernel struct {
	fairshare.Launch
	work    time.Duration // how long it runs alone
	leave   time.Duration // how long it takes to leave when told
	again   time.Duration // what relaunching it costs
	at      time.Duration // when it arrives
	repeat  bool          // whether its guest launches it again when it is done
	pause   time.Duration // before it launches it again
	unknown bool          // whether the policy doesn't know its duration and eviction cost
	// stream has the next one submitted while it runs, if it is the guest's turn, or else when it is
	// done. Its executor announces one that can go to the GPU only.
	stream bool

	next   bool    // whether the next one was submitted
	behind *kernel // the one before it, behind which it is on the GPU

	left     float64       // of work, and of added costs
	leftAt   time.Duration // when it will have left after it was told to; 0: it was not
	started  time.Duration // when it first ran; below 0: never
	finished time.Duration
	evicted  int
}

// kernelSim runs launches as a policy decides, and reports events to the policy. One launch has the
// GPU at a time. If the policy runs more, they take turns, or share the SMs if one of them has left
// some. turn is the time to load a guest's context, if contexts must be loaded: a launch whose
// context is being loaded can't be told to leave before that is done.
type kernelSim struct {
	now     time.Duration
	policy  fairshare.Policy
	st      fairshare.State
	coming  []*kernel // in order of time
	here    []*kernel // in order of arrival
	done    []*kernel
	asked   time.Duration // when the policy wants to be called; 0: never
	next    fairshare.LaunchID
	had     map[fairshare.GuestID]time.Duration // GPU time, leaving included
	noWork  map[fairshare.GuestID]time.Duration // time without a launch
	lost    time.Duration                       // to evictions and relaunches
	idle    time.Duration
	turn    time.Duration     // time to load a guest's context in place of another's
	loaded  fairshare.GuestID // the guest whose context is loaded
	ready   time.Duration     // when it is loaded
	turning time.Duration     // total loading time
	scratch []float64
	errors  []string
	watch   func(ev fairshare.Event, v []fairshare.Verdict) // called after each decision, before it is applied
	evicted map[fairshare.GuestID]int                       // evictions by the guest for whose sake they were
	lossy   func() bool                                     // whether a verdict is lost
	queues  bool                                            // whether a launch that is let run beside another waits for its end
	turns   bool                                            // whether executors let launches run in their guests' turns
	open    fairshare.Turn
	until   time.Duration // end of open
	went    int           // launches that ran without a verdict, and of them
	wentOn  int           // those that were put behind another one
	early   int           // launches that were let run before another had ended
}

func newKernelSim(policy string, o fairshare.Options, guests ...fairshare.Guest) *kernelSim {
	p, err := fairshare.New(policy, o)
	if err != nil {
		panic(err)
	}
	s := &kernelSim{policy: p, had: map[fairshare.GuestID]time.Duration{}, noWork: map[fairshare.GuestID]time.Duration{}, evicted: map[fairshare.GuestID]int{}}
	s.st = fairshare.State{Guests: guests, SMs: 16, Round: 20 * ms}
	return s
}

// guests returns guests with the given weights, numbered from 1.
func guests(weights ...float64) (all []fairshare.Guest) {
	for i, w := range weights {
		all = append(all, fairshare.Guest{ID: fairshare.GuestID(i + 1), Weight: w, Active: true, Backlogged: true})
	}
	return all
}

// submit schedules a kernel's arrival.
func (s *kernelSim) submit(k *kernel) *kernel {
	s.next++
	k.ID = s.next
	if !k.unknown {
		k.Predicted, k.EvictionCost = k.work, k.leave+k.again
	}
	k.left, k.started = float64(k.work), -1
	i, _ := slices.BinarySearchFunc(s.coming, k, func(a, b *kernel) int {
		if a.at <= b.at {
			return -1
		}
		return 1
	})
	s.coming = slices.Insert(s.coming, i, k)
	return k
}

// rates returns the speed of each present kernel, and whether the GPU is in use.
func (s *kernelSim) rates() (rates []float64, busy bool) {
	s.scratch = slices.Grow(s.scratch[:0], len(s.here))[:len(s.here)]
	rates = s.scratch
	clear(rates)
	on, shared, blocked := 0, false, s.now < s.ready
	for _, k := range s.here {
		if !k.Running || k.behind != nil {
			continue
		}
		busy = true
		blocked = blocked || k.leftAt > s.now
		shared = shared || k.BelowSM > 0
		if !k.Evicting {
			on++
		}
	}
	for i, k := range s.here {
		switch {
		case !k.Running || k.Evicting || k.behind != nil:
		case k.BelowSM > 0:
			rates[i] = float64(s.st.SMs-k.BelowSM) / float64(s.st.SMs)
		case blocked:
		case shared:
			rates[i] = 1
		default:
			rates[i] = 1 / float64(on)
		}
	}
	return rates, busy
}

// run advances the simulation to time t.
func (s *kernelSim) run(t time.Duration) {
	for {
		s.catchUp()
		if s.now >= t {
			return
		}
		s.load()
		rates, busy := s.rates()
		to := t
		if s.ready > s.now {
			to = min(to, s.ready)
		}
		if len(s.coming) > 0 {
			to = min(to, s.coming[0].at)
		}
		if s.asked > 0 {
			to = min(to, s.asked)
		}
		for i, k := range s.here {
			if k.leftAt > s.now {
				to = min(to, k.leftAt)
			}
			if rates[i] > 0 {
				to = min(to, s.now+time.Duration(math.Ceil(k.left/rates[i])))
			}
		}
		s.pass(to-s.now, rates, busy)
	}
}

// load loads the context of the kernel that runs next, once no kernel is leaving.
func (s *kernelSim) load() {
	if s.turn == 0 || s.now < s.ready || slices.ContainsFunc(s.here, func(k *kernel) bool { return k.leftAt > s.now }) {
		return
	}
	i := slices.IndexFunc(s.here, func(k *kernel) bool { return k.Running })
	if i < 0 || s.here[i].Guest == s.loaded {
		return
	}
	s.loaded, s.ready = s.here[i].Guest, s.now+s.turn
	s.turning += s.turn
}

// pass advances time by d, in which nothing happens.
func (s *kernelSim) pass(d time.Duration, rates []float64, busy bool) {
	if !busy {
		s.idle += d
	}
	for i := range s.st.Guests {
		if id := s.st.Guests[i].ID; !s.has(id) {
			s.noWork[id] += d
		}
	}
	leaving := false
	for i, k := range s.here {
		k.left -= float64(d) * rates[i]
		if rates[i] > 0 {
			k.Used += time.Duration(float64(d) * rates[i])
			s.had[k.Guest] += time.Duration(float64(d) * rates[i])
		}
		if k.Evicting && !leaving {
			leaving = true
			s.had[k.Guest] += d
			s.lost += d
		}
	}
	s.now += d
}

// has reports whether a guest has a launch.
func (s *kernelSim) has(id fairshare.GuestID) bool {
	return slices.ContainsFunc(s.here, func(k *kernel) bool { return k.Guest == id })
}

// catchUp reports to the policy what has happened up to now.
func (s *kernelSim) catchUp() {
	for again := true; again; {
		again = s.goOn()
		for i, k := range s.here {
			if k.Running && k.left < 0.5 {
				s.here = slices.Delete(s.here, i, i+1)
				k.finished, k.Running, k.Evicting, k.leftAt = s.now, false, false, 0
				s.done = append(s.done, k)
				for _, o := range s.here {
					if o.behind == k {
						o.behind = nil
					}
				}
				if k.repeat && !k.next {
					s.submit(k.twin(s.now + k.pause))
				}
				s.decide(fairshare.Event{Kind: fairshare.Finished, Guest: k.Guest, Launch: k.ID})
				again = true
				break
			}
			if k.leftAt == 0 || k.leftAt > s.now {
				continue
			}
			k.leftAt = 0
			if k.Evicting {
				k.Running, k.Evicting, k.BelowSM = false, false, 0
				k.left += float64(k.again)
				s.lost += k.again
				s.decide(fairshare.Event{Kind: fairshare.Evicted, Guest: k.Guest, Launch: k.ID})
			}
			again = true
			break
		}
		if again {
			continue
		}
		if len(s.coming) > 0 && s.coming[0].at <= s.now {
			k := s.coming[0]
			s.coming = s.coming[1:]
			k.Arrived = s.now
			s.goesByItself(k)
			s.here = append(s.here, k)
			s.decide(fairshare.Event{Kind: fairshare.Arrived, Guest: k.Guest, Launch: k.ID})
			again = true
		} else if s.asked > 0 && s.asked <= s.now {
			s.decide(fairshare.Event{Kind: fairshare.Tick})
			again = true
		}
	}
}

// decide asks the policy and applies its verdicts.
func (s *kernelSim) decide(ev fairshare.Event) {
	s.st.Launches = s.st.Launches[:0]
	for _, k := range s.here {
		s.st.Launches = append(s.st.Launches, k.Launch)
	}
	verdicts, next := s.policy.Decide(s.now, ev, s.st)
	if s.turns {
		s.open = s.policy.(fairshare.TurnTaker).Turn()
		s.until = s.now + s.open.Lasts
	}
	s.asked = 0
	if next > 0 {
		s.asked = s.now + next
	}
	if s.watch != nil {
		s.watch(ev, verdicts)
	}
	for _, v := range verdicts {
		if s.lossy == nil || !s.lossy() {
			s.carryOut(v)
		}
	}
}

func (s *kernelSim) failf(format string, args ...any) {
	s.errors = append(s.errors, fmt.Sprintf("%v: ", s.now)+fmt.Sprintf(format, args...))
}

func (s *kernelSim) carryOut(v fairshare.Verdict) {
	if v.Action == fairshare.Suspend || v.Action == fairshare.Resume {
		for i := range s.st.Guests {
			if s.st.Guests[i].ID == v.Guest {
				s.st.Guests[i].Suspended = v.Action == fairshare.Suspend
			}
		}
		return
	}
	i := slices.IndexFunc(s.here, func(k *kernel) bool { return k.ID == v.Launch && k.Guest == v.Guest })
	if i < 0 {
		s.failf("%v of a launch that is not there: %+v", v.Action, v)
		return
	}
	k := s.here[i]
	switch v.Action {
	case fairshare.Run:
		if k.Running && (k.Evicting || k.BelowSM == 0) {
			s.failf("launch %d is let run while it runs", k.ID)
		}
		if k.started < 0 {
			k.started = s.now
		}
		for _, o := range s.here {
			if s.queues && o.Running && !o.Evicting {
				k.behind = o
				s.early++
			}
		}
		k.Running, k.BelowSM = true, 0
	case fairshare.Evict:
		if !k.Running || k.Evicting || !k.Evictable || v.BelowSM <= k.BelowSM {
			s.failf("eviction of %+v by %+v", k.Launch, v)
		}
		s.evicted[v.For]++
		k.evicted++
		k.leftAt = max(s.now, s.ready) + max(k.leave, 1)
		if k.behind != nil {
			k.leftAt = s.now + 1 // its blocks do nothing
		}
		if v.BelowSM >= s.st.SMs {
			k.Evicting = true
		}
		k.BelowSM = v.BelowSM
		if k.Evicting {
			k.BelowSM = 0
		}
	default:
		s.failf("a verdict that is not for these policies: %+v", v)
	}
}
