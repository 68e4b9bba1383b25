package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/api"
)

// edgeHostPart is the part about figure 4a: programs of the host's processor beside a GPU's packets.
const edgeHostPart = "edge-host"

// pingPackets is how many packets come at a time: a warp's. pingWarm is how long they have come before
// a window, and still do after it.
const (
	pingPackets = 32
	pingWarm    = 50 * time.Millisecond
)

// burnKinds are the programs, of which the first needs a processor alone, and the second memory.
var burnKinds = [...]string{"compute", "memory"}

// The worlds of figure 4a: who launches the kernels that answer packets.
const (
	byThread = iota // a thread of the host's
	byEvent         // the card, by stores
	launchers
)

var launcherNames = [launchers]string{"native_launch", "event"}

// pings answers packets on the GPU beside programs of one processor of the host, on which is also what
// the launches need of the host: the native program, or the daemon with the guest's executor. The
// card's stand-in has another processor.
type pings struct {
	*bench
	host, card int
	members    [launchers]*member
	jobs       [launchers]int
	burner     *member
	alone      [launchers][]float64                 // launches a second
	slow       [launchers][len(burnKinds)][]float64 // factors
	rates      [launchers][len(burnKinds)][]float64
}

// eventsBesideHost measures figure 4a.
func eventsBesideHost(ctx context.Context, b *bench) (err error) {
	p := &pings{bench: b}
	if p.host, p.card, err = twoProcessors(); err != nil {
		return err
	}
	if err := onProcessor(p.host, func() error { return p.onHost(ctx) }); err != nil {
		return err
	}
	err = onProcessor(p.card, func() (err error) {
		p.members[byEvent], err = b.guest(ctx, tenant.Setup{Name: "card"})
		return err
	})
	if err != nil {
		return err
	}
	for i, m := range p.members {
		if p.jobs[i], err = m.load(ctx, tenant.Job{Work: &tenant.Work{Kernel: "ping", Size: pingPackets}}); err != nil {
			return err
		}
	}
	if _, err := p.members[byEvent].ask(ctx, tenant.Request{Stream: &tenant.Stream{Job: p.jobs[byEvent]}}); err != nil {
		return err
	}
	if err := b.repeat(1, func(int) error { return p.once(ctx) }); err != nil {
		return err
	}
	p.report(ctx)
	return nil
}

// onHost starts the daemon again, and the programs of the host.
func (p *pings) onHost(ctx context.Context) (err error) {
	if err := p.stopDaemon(); err != nil {
		return err
	}
	if err := p.startDaemon(ctx); err != nil {
		return err
	}
	if p.members[byThread], err = p.native(ctx, "native"); err != nil {
		return err
	}
	if p.burner, err = p.tenant(tenant.Setup{Name: "program", Burns: true}); err != nil {
		return err
	}
	return p.await(ctx, []*member{p.burner})
}

func (p *pings) window() time.Duration {
	return pick(p.bench, 300*time.Millisecond, 600*time.Millisecond, 600*time.Millisecond)
}

// ping answers packets in one of the worlds for a window that begins at, and returns how many launches there
// were a second.
func (p *pings) ping(ctx context.Context, world int, at time.Time) (float64, error) {
	begin, window := at.Add(-pingWarm).UnixNano(), p.window()
	r := tenant.Request{Run: &tenant.Run{Job: p.jobs[world], At: begin, Warm: pingWarm, For: window, After: pingWarm, Depth: streamDepth, Rounds: endless}}
	if world == byEvent {
		r = tenant.Request{Stream: &tenant.Stream{Job: p.jobs[world], At: begin, Warm: pingWarm, For: window, After: pingWarm, Depth: streamDepth}}
	}
	a, err := p.members[world].ask(ctx, r)
	if err != nil {
		return 0, err
	}
	return float64(a.Ran.Launches) / a.Ran.Window.Seconds(), nil
}

// burn runs a program for the window that begins at, and returns how much it got done.
func (p *pings) burn(ctx context.Context, kind int, at time.Time, window time.Duration) (float64, error) {
	a, err := p.burner.ask(ctx, tenant.Request{Burn: &tenant.Burn{
		Kind: burnKinds[kind], Bytes: pick(p.bench, 4<<20, 512<<20, 512<<20), At: at.UnixNano(), For: window,
	}})
	return float64(a.Burnt), err
}

// start returns the instant at which all sides begin with what they are asked next.
func (p *pings) start() time.Time { return time.Now().Add(lead + pingWarm) }

// once measures everything once: each alone, right before or around what is measured of both.
func (p *pings) once(ctx context.Context) error {
	last := [launchers]float64{}
	for w := range launchers {
		rate, err := p.ping(ctx, w, p.start())
		if err != nil {
			return err
		}
		p.alone[w], last[w] = append(p.alone[w], rate), rate
	}
	for kind := range burnKinds {
		if _, err := p.burn(ctx, kind, time.Now(), 0); err != nil { // its memory
			return err
		}
		before, err := p.burn(ctx, kind, p.start(), p.window())
		if err != nil {
			return err
		}
		var beside [launchers]float64
		for w := range launchers {
			at := p.start()
			rated := make(chan error, 1)
			var rate float64
			go func() {
				var err error
				rate, err = p.ping(ctx, w, at)
				rated <- err
			}()
			beside[w], err = p.burn(ctx, kind, at, p.window())
			if err := errors.Join(err, <-rated); err != nil {
				return err
			}
			p.rates[w][kind] = append(p.rates[w][kind], last[w]/rate)
		}
		after, err := p.burn(ctx, kind, p.start(), p.window())
		if err != nil {
			return err
		}
		for w := range launchers {
			p.slow[w][kind] = append(p.slow[w][kind], (before+after)/2/beside[w])
		}
	}
	return nil
}

// worse returns the larger of the two programs' values, by run.
func worse(of [len(burnKinds)][]float64) (all []float64) {
	for i := range of[0] {
		all = append(all, max(of[0][i], of[1][i]))
	}
	return all
}

// report makes the rows.
func (p *pings) report(ctx context.Context) {
	how := fmt.Sprintf("figure 4a, on one processor of the host: a program that computes, or one that walks through %d MiB at random. Kernels of one warp swap the addresses of %d packets, which always wait, eight launches under way. They are launched by a card's stand-in on another processor by stores, while the daemon, its processes and the guest's executor have the program's (event, %s), or by a native program's thread there that launches and polls (native_launch). The larger of the two programs'",
		pick(p.bench, 4, 512, 512), pingPackets, p.tier(ctx, p.members[byEvent]))
	slow := p.row("cpu_slow", worse(p.slow[byEvent]), how+" time beside that over its time alone, by what it gets done in windows of "+p.window().String())
	rate := p.row("ping_rate", worse(p.rates[byEvent]), how+" effect on the rate of packets: alone over beside it")
	for w, world := range launcherNames {
		for k, kind := range burnKinds {
			slow.Baseline[world+"_"+kind] = figure.Median(p.slow[w][k])
			rate.Baseline[world+"_"+kind] = figure.Median(p.rates[w][k])
		}
		rate.Baseline[world+"_packets_per_s_alone"] = pingPackets * figure.Median(p.alone[w])
	}
	p.say("launches a second alone %.0f, programs' factors %.3f, packets' %.3f", p.alone, p.slow, p.rates)
	p.add(slow, rate)
}

// tier says what launches a guest's event kernels, as the daemon does a moment after they were registered.
func (b *bench) tier(ctx context.Context, m *member) string {
	const tries, each = 25, 20 * time.Millisecond
	for range tries {
		all, err := b.client.EventKernels(ctx)
		if err != nil {
			return err.Error()
		}
		if i := slices.IndexFunc(all, func(k api.EventKernel) bool { return k.VM == m.name }); i >= 0 {
			return "tier " + all[i].Tier
		}
		if err := rest(ctx, each); err != nil {
			return err.Error()
		}
	}
	return "tier not told"
}
