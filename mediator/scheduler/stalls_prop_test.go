package scheduler

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/launchqueue"
)

// play is a scene in which the test is the guests' executors and runs the timers.
type play struct {
	*scene
	honest []*program
	waited time.Duration // the longest time that an honest launch waited, from when it was ready
}

// program is an honest guest's program: it launches a kernel, and the next one when that has ended.
type program struct {
	g          *Guest
	v          ipc.Launch
	length     time.Duration
	claim      ipc.Claim
	ready, end time.Duration
	left       time.Duration
}

func newPlay(rt *rapid.T, s *scene) *play {
	p := &play{scene: s}
	for i := range 2 {
		w := &program{g: s.guests[1+i], length: time.Duration(rapid.IntRange(1, 30).Draw(rt, "length")) * ms / 10}
		w.v = ipc.Launch{Evictable: rapid.Bool().Draw(rt, "evictable"), Form: 1, Predicted: w.length, Kernel: uint64(i)}
		p.honest = append(p.honest, w)
	}
	return p
}

// step has the executors act, and advances the clock until something happens, for limit at most.
func (p *play) step(limit time.Duration) {
	now := p.clock.Now()
	next := now + limit
	for _, w := range p.honest {
		switch w.claim.State() {
		case slotstate.None, slotstate.Done:
			w.left = w.length
			w.claim = p.submit(w.g, w.v)
			w.ready = p.clock.Now()
		case slotstate.ToRun:
			p.waited = max(p.waited, now-w.ready)
			w.claim.Start(now)
			w.end = now + w.left
		case slotstate.ToEvict:
			if w.claim.Started() { // else it was told so on its way to the GPU
				w.left = max(w.end-now, 1)
			}
			w.claim.Leave(now, w.length-w.left)
			w.ready = now
		case slotstate.Running:
			if now >= w.end {
				w.claim.Finish(w.length)
			}
		}
		if w.claim.State() == slotstate.Running {
			next = min(next, w.end)
		}
		if w.claim.State() == slotstate.Ready {
			p.waited = max(p.waited, now-w.ready)
		}
	}
	p.sched.LaunchesChanged()
	for _, w := range p.honest {
		if s := w.claim.State(); s != slotstate.Ready && s != slotstate.Running {
			next = p.clock.Now() + time.Microsecond
		}
	}
	if at := p.sched.NextTimer(); at != 0 {
		next = min(next, at)
	}
	p.clock.Advance(max(next-p.clock.Now(), time.Microsecond))
	p.sched.RunTimers()
}

// TestStalledExecutorsKeepNobodyWaiting: an executor that asks for turns and does not use them
// keeps no launch of another guest waiting for long, under any policy, and leaves the GPU idle for
// little of the time.
func TestStalledExecutorsKeepNobodyWaiting(t *testing.T) {
	const span = 300 * ms
	rapid.Check(t, func(rt *rapid.T) {
		policy := rapid.SampledFrom(kernelPolicies()).Draw(rt, "policy")
		s := newScene(t)
		stalled := s.join(1, 1, 1)
		s.join(2, 1, 2)
		s.join(3, 1, 3)
		if err := s.sched.SetPolicy(policy); err != nil {
			rt.Fatal(err)
		}
		s.sched.gpu.Properties.Preempts = rapid.Bool().Draw(rt, "preempts")
		s.sched.SetEvictionDeadline(500 * ms)
		s.sched.Changed(0)
		p := newPlay(rt, s)
		var claims []ipc.Claim
		for range rapid.IntRange(1, ipc.MaxLaunchSlots).Draw(rt, "stalled") {
			v := ipc.Launch{Evictable: rapid.Bool().Draw(rt, "evictable"), Form: 1, Predicted: time.Duration(rapid.IntRange(0, 5).Draw(rt, "predicted")) * ms}
			claims = append(claims, s.submit(stalled, v))
		}
		begin := s.clock.Now()
		for s.clock.Now() < begin+span {
			p.step(10 * ms)
			if rapid.IntRange(0, 30).Draw(rt, "again") == 0 {
				i := rapid.IntRange(0, len(claims)-1).Draw(rt, "which")
				claims[i].Abandon(0)
				claims[i] = s.submit(stalled, ipc.Launch{Evictable: true, Form: 1, Predicted: ms / 100})
			}
		}
		// As long as the others' kernels take, by turns of epochs or slices, and a turn that nobody
		// uses. By dprr those that had a slice may starve behind new ones.
		if limit := 150 * ms; p.waited > limit && policy != "dprr" {
			rt.Errorf("a guest waited for %v, want %v at most", p.waited, limit)
		}
		if got := stalled.o.Page.Bill().Used; got > span/5 {
			rt.Errorf("it left the GPU idle for %v of %v", got, span)
		}
	})
}

// slotsIn returns where on a page the launch slots are, by what one of them has.
func slotsIn(t require, p *ipc.ControlPage) (at, size int64) {
	t.Helper()
	const magic = 0x5ca1ab1e0ddba115
	c, ok := p.Claim(0, &ipc.Launch{Kernel: magic})
	if !ok {
		t.Fatal("no stub")
	}
	defer c.Abandon(0)
	all := make([]byte, ipc.ControlPageBytes)
	if _, err := p.File().ReadAt(all, 0); err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(all, binary.LittleEndian.AppendUint64(nil, magic))
	if i < 0 {
		t.Fatal("the page does not say what was written")
	}
	const kernelAt, stubBytes = 128, 256
	return int64(i - kernelAt), ipc.MaxLaunchSlots * stubBytes
}

// TestHostileSlots: whatever one guest's launch slots have, the scheduler goes on, and other
// guests' launches get their turns in at most as long as that guest's launches may run.
func TestHostileSlots(t *testing.T) {
	const limit = 50 * ms
	for _, policy := range kernelPolicies() {
		t.Run(policy, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				s := newScene(t)
				for id := range fairshare.GuestID(3) {
					terms := ipc.Terms{Weight: 1, PriorityCeiling: rapid.IntRange(0, 2).Draw(rt, "ceiling")}
					s.joinWith(id+1, GuestOptions{Terms: terms, TimeLimit: limit}, uint16(id+1))
				}
				mad := s.guests[0].o.Page
				if err := s.sched.SetPolicy(policy); err != nil {
					rt.Fatal(err)
				}
				s.sched.gpu.Properties.Preempts = rapid.Bool().Draw(rt, "preempts")
				s.sched.SetEvictionDeadline(500 * ms)
				s.sched.Changed(0)
				p := newPlay(rt, s)
				at, size := slotsIn(rt, mad)
				write := func(b []byte, off int64) {
					if _, err := mad.File().WriteAt(b, at+off); err != nil {
						rt.Fatal(err)
					}
				}
				for range rapid.IntRange(1, 40).Draw(rt, "steps") {
					switch rapid.IntRange(0, 2).Draw(rt, "what") {
					case 0: // anything
						off := rapid.Int64Range(0, size-1).Draw(rt, "where")
						b := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(rt, "bytes")
						write(b[:min(int64(len(b)), size-off)], off)
					default: // a launch in a state
						i := rapid.Int64Range(0, ipc.MaxLaunchSlots-1).Draw(rt, "stub")
						word := rapid.Uint64Range(1, 5).Draw(rt, "launch")<<16 | rapid.Uint64Range(0, 33).Draw(rt, "context")<<8 | rapid.Uint64Range(0, 8).Draw(rt, "state")
						write(binary.LittleEndian.AppendUint64(nil, word), i*(size/ipc.MaxLaunchSlots))
					}
					for range rapid.IntRange(0, 3).Draw(rt, "more") {
						p.step(ms)
					}
				}
				// Now that guest stops. By priority, all of its launches come first.
				for _, w := range p.honest {
					w.claim.Abandon(0)
				}
				p.step(ms)
				each := 2*limit + ipc.UnresponsiveLimit + 64*launchqueue.TurnLimit // the time that it may run, and the longest backoff
				begin := s.clock.Now()
				for i, w := range p.honest {
					last := w.claim.Launch()
					for w.claim.Launch() == last || w.claim.State() == slotstate.Ready {
						if s.clock.Now() > begin+(ipc.MaxLaunchSlots+2)*each {
							rt.Fatalf("honest guest %d waits since %v", i+2, s.clock.Now()-w.ready)
						}
						p.step(time.Second)
						if i == 1 && fairshare.ByPriority(policy) && s.guests[2].Terms().PriorityCeiling < s.guests[1].Terms().PriorityCeiling {
							return // behind the other, for as long as that has launches
						}
					}
				}
			})
		})
	}
}
