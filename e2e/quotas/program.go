package main

import (
	"slices"
	"time"

	"vgpud/gpu/soft/machine"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/scheduler"
)

// program is what a guest does, and what it is granted.
type program struct {
	name   string
	terms  ipc.Terms
	length time.Duration // of its kernels, give or take a hundredth
	// pause is how long it waits after each kernel before it submits the next. If it is 0 it keeps
	// kernels waiting.
	pause time.Duration
	// on and off are how long it computes and how long it then does not, on average. If off is 0 it
	// computes all the time.
	on, off time.Duration
	// here and away are how long the guest is attached and how long it then is not, on average. If
	// away is 0 it stays.
	here, away time.Duration
	budget     time.Duration // hard limit; 0 is none
	// joins has the guest join the budgets' ledger, and account is what it then has there.
	joins   func() scheduler.Budget
	account *account
	spent   spent

	guest *guest // in its first life or a later one
	idle  bool   // whether it is between two times of computing
}

const (
	// depth is how many kernels a program keeps submitted, and ahead how many of them the host has
	// fetched to the GPU. Where launches wait for verdicts one has a launch slot, and in the guest's
	// turn a second one behind it, if the two take no more than behindWork: see goOn.
	depth      = 4
	ahead      = 2
	behindWork = time.Millisecond
)

// alone returns the part of the GPU that the program uses by itself while it computes.
func (p *program) alone() float64 {
	return p.length.Seconds() / (p.length + p.pause).Seconds()
}

// begin attaches the program's guest and has it compute.
func (w *world) begin(p *program) error {
	g, err := w.attach(p)
	if err != nil {
		return err
	}
	p.idle = false
	life := g.life
	if p.away > 0 {
		w.at(w.m.Now()+w.around(p.here), func() {
			check("detach a guest", g.detach())
			w.at(w.m.Now()+w.around(p.away), func() { check("attach a guest", w.begin(p)) })
		})
	}
	if p.off > 0 {
		w.turnOff(g, life)
	}
	g.submit()
	return nil
}

// turnOff ends the computing of a life of a guest after a while, and has it begin again later.
func (w *world) turnOff(g *guest, life int) {
	w.at(w.m.Now()+w.around(g.on), func() {
		if g.life != life {
			return
		}
		g.idle = true
		w.at(w.m.Now()+w.around(g.off), func() {
			if g.life != life {
				return
			}
			g.idle = false
			g.submit()
			w.turnOff(g, life)
		})
	})
}

// around draws a time between half of d and one and a half.
func (w *world) around(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.5 + w.rand.Float64()))
}

// kernel is a command of a guest.
type kernel struct {
	guest   *guest
	life    int
	launch  machine.Launch
	length  time.Duration
	left    time.Duration // of length
	used    time.Duration
	fetched bool
	begun   bool // executes, or has executed since it was last fetched

	claim            ipc.Claim // its launch slot
	running, leaving bool      // the executor has seen that it has its turn, or is to leave
}

// submit submits kernels until the guest has as many as it keeps submitted.
func (g *guest) submit() {
	most := depth
	switch {
	case g.pause > 0:
		most = 1
	case g.w.byKernel:
		most = 1
	}
	g.w.count()
	for !g.idle && g.outstanding < most {
		g.next()
	}
	g.fetch()
	if g.w.byKernel {
		g.w.changed()
	}
}

// next submits a kernel.
func (g *guest) next() *kernel {
	length := time.Duration(float64(g.length) * (0.99 + 0.02*g.w.rand.Float64()))
	k := &kernel{guest: g, life: g.life, length: length, left: length}
	k.launch.Tag = k
	g.kernels = append(g.kernels, k)
	g.outstanding++
	if g.w.byKernel {
		k.ask()
		if len(g.kernels) == 1 && g.inTurn(0) {
			k.claim.Grant()
		}
	}
	return k
}

// inTurn reports whether it is the guest's turn, and will be in a while.
func (g *guest) inTurn(in time.Duration) bool {
	return !g.suspended && g.w.m.Now()+in < g.page.Turn().Until
}

// goOn has the guest's next kernel go behind the one that is on the GPU, as executors do in their
// guest's turn.
func (g *guest) goOn() {
	if g.idle || g.pause > 0 || len(g.kernels) != 1 || 2*g.length > behindWork || !g.page.Turn().Behind {
		return
	}
	if k := g.kernels[0]; !k.fetched || k.claim.State() != slotstate.Running || !g.inTurn(k.left) {
		return
	}
	g.w.count()
	g.next().claim.Grant()
	g.w.changed()
}

// fetch gives kernels to the GPU, unless the guest is suspended or its launches wait for verdicts.
func (g *guest) fetch() {
	for _, k := range g.kernels {
		if g.suspended || g.w.byKernel || g.fetched == ahead {
			return
		}
		if !k.fetched {
			k.start()
		}
	}
}

// start gives the rest of the kernel to the GPU.
func (k *kernel) start() {
	k.fetched, k.begun = true, false
	k.guest.fetched++
	k.launch.Work = machine.Work{Duration: k.left}
	check("submit a kernel", k.guest.channel.Submit(&k.launch))
}

// ask claims a launch slot for the kernel.
func (k *kernel) ask() {
	now := k.guest.w.m.Now()
	var ok bool
	k.claim, ok = k.guest.page.Claim(0, &ipc.Launch{
		Kernel: 1, Arrived: now, Predicted: k.length, Evictable: true, Form: 1, Blocks: 1, Tasks: 1, PerSM: 1,
	})
	if !ok {
		panic("quotas: a guest has more kernels than a page has launch slots")
	}
}

// obey does what the kernel's launch slot says, a moment later.
func (k *kernel) obey() {
	g, w := k.guest, k.guest.w
	state := k.claim.State()
	if state == slotstate.Ready && g.page.Mode() == ipc.ModeAhead && !g.suspended && g.fetched == 0 && k.claim.Grant() {
		state = slotstate.ToRun
	}
	if state.OnGPU() && !k.running {
		k.running = true
		w.sent++
		w.at(w.m.Now()+react, func() {
			w.count()
			w.sent--
			if k.life == g.life {
				k.start()
				k.claim.Start(w.m.Now())
				g.goOn()
			}
		})
	}
	switch {
	case state != slotstate.ToEvict:
		k.leaving = false // it may stay
	case !k.leaving:
		k.leaving = true
		w.at(w.m.Now()+react, k.evict)
	}
}

// evict has the kernel leave the GPU.
func (k *kernel) evict() {
	w := k.guest.w
	switch {
	case !k.leaving, k.life != k.guest.life: // it has ended, or may stay
	case !k.fetched:
		w.at(w.m.Now()+react, k.evict) // it is about to start
	case !k.begun:
		w.m.Kill(&k.launch)
		k.evicted()
	default:
		w.m.Evict(&k.launch, leaves)
	}
}

// evicted handles that the kernel has left the GPU.
func (k *kernel) evicted() {
	w := k.guest.w
	if k.begun {
		k.left = max(k.left-k.launch.Elapsed(), 0) + relaunch
		k.used += k.launch.Elapsed()
	}
	k.guest.fetched--
	k.fetched, k.begun, k.running, k.leaving = false, false, false, false
	k.claim.Leave(w.m.Now(), k.used)
	w.changed()
}

// finished handles the end of the kernel.
func (k *kernel) finished() {
	g, w := k.guest, k.guest.w
	now := w.m.Now()
	elapsed := k.launch.Elapsed()
	k.used += elapsed
	g.ended.Kernels++
	g.ended.GPUTime += k.used
	// Until the suspension's end, from its beginning.
	from, until := g.since, now
	if !g.suspended {
		from, until = g.before, g.since
	}
	g.ended.LateTime += max(until-max(now-elapsed, from), 0)
	g.kernels = slices.DeleteFunc(g.kernels, func(o *kernel) bool { return o == k })
	g.fetched--
	g.outstanding--
	k.leaving = false
	k.claim.Finish(k.used)
	if g.pause > 0 {
		w.at(now+w.around(g.pause), func() {
			if k.life == g.life {
				g.submit()
			}
		})
		if w.byKernel {
			w.changed()
		}
		return
	}
	g.submit()
}
