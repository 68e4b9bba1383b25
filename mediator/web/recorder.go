package web

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/mediator/api"
)

// Source is what a recorder looks at.
type Source interface {
	VMs() []api.VM
	GPUs() []api.GPU
	Health() api.Health
}

// The histories' lengths. A guest's three series of 600 and 1440 points take 12 KiB.
const (
	fineStep    = time.Second
	fineLength  = 600
	coarseEvery = 60
	coarseSpan  = 1440
	// nowOver is how many of the last points "now" is the mean of.
	nowOver = 5
)

// Recorder looks at a source once a second and keeps what the page shows.
type Recorder struct {
	source Source
	clock  clock.Clock
	wall   func() time.Time

	mu           sync.RWMutex
	fine, coarse *history
	at           time.Duration // of the last look
	before       map[string]totals
	gpusBefore   map[string]gpuTotals
	now          view
}

// totals are a guest's counters at the last look.
type totals struct {
	used, suspended    float64
	kernels, evictions uint64
}

type gpuTotals struct {
	busy     float64
	switches uint64
}

// view is what the last look showed.
type view struct {
	GPUs   []GPU
	Guests []Guest
	Health api.Health
}

// NewRecorder returns a recorder without any points.
func NewRecorder(s Source, c clock.Clock, wall func() time.Time) *Recorder {
	return &Recorder{
		source: s, clock: c, wall: wall, fine: newHistory(fineLength), coarse: newHistory(coarseSpan),
		before: make(map[string]totals), gpusBefore: make(map[string]gpuTotals),
	}
}

// Run looks once a second until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	r.look()
	for clock.Tick(ctx, r.clock, fineStep) == nil {
		r.look()
	}
}

// look records one instant.
func (r *Recorder) look() {
	vms, gpus, health := r.source.VMs(), r.source.GPUs(), r.source.Health()
	now, wall := r.clock.Now(), r.wall()
	r.mu.Lock()
	defer r.mu.Unlock()
	elapsed := (now - r.at).Seconds()
	first := r.at == 0
	r.at = now
	var observed []observation
	before := make(map[string]totals, len(vms))
	rates := make(map[string]Rates, len(vms))
	for i := range vms {
		v := &vms[i]
		is := totals{v.GPUSeconds, v.SuspendedSeconds, v.Kernels, v.Preemption.Evictions}
		before[v.Name] = is
		was, known := r.before[v.Name]
		// A counter that went back is another guest's with the same name, or not known yet.
		if first || !known || is.used < was.used || is.kernels < was.kernels || v.Silent != "" || v.Lost != "" {
			continue
		}
		rates[v.Name] = Rates{
			KernelsPerSecond:   float64(is.kernels-was.kernels) / elapsed,
			EvictionsPerSecond: float64(is.evictions-min(was.evictions, is.evictions)) / elapsed,
		}
		observed = append(observed, observation{kindGuest, v.GPU, v.Name, [seriesCount]int16{
			seriesShare:    point((is.used - was.used) / elapsed),
			seriesEntitled: point(v.Entitled),
			seriesHeld:     point(max(is.suspended-was.suspended, 0) / elapsed),
		}})
	}
	gpusBefore := make(map[string]gpuTotals, len(gpus))
	switches := make(map[string]float64, len(gpus))
	for i := range gpus {
		g := &gpus[i]
		is := gpuTotals{g.BusySeconds, g.Switches}
		gpusBefore[g.Name] = is
		was, known := r.gpusBefore[g.Name]
		if first || !known || is.busy < was.busy || is.switches < was.switches {
			continue
		}
		switches[g.Name] = float64(is.switches-was.switches) / elapsed
		observed = append(observed, observation{kindGPU, g.Name, "", [seriesCount]int16{
			seriesShare: point((is.busy - was.busy) / elapsed), seriesEntitled: missing, seriesHeld: missing,
		}})
	}
	r.before, r.gpusBefore = before, gpusBefore
	r.fine.add(wall.UnixMilli(), observed)
	if r.fine.next%coarseEvery == 0 {
		r.coarse.add(wall.UnixMilli(), r.fine.mean(coarseEvery))
	}
	means := make(map[string]observation)
	for _, o := range r.fine.mean(nowOver) {
		means[o.key()] = o
	}
	next := view{Health: health}
	for i := range gpus {
		o := observation{kind: kindGPU, gpu: gpus[i].Name}
		next.GPUs = append(next.GPUs, gpuOf(&gpus[i], means[o.key()], switches[gpus[i].Name]))
	}
	for i := range vms {
		o := observation{kind: kindGuest, gpu: vms[i].GPU, name: vms[i].Name}
		mean, ok := means[o.key()]
		if !ok {
			mean.points = [seriesCount]int16{missing, missing, missing}
		}
		next.Guests = append(next.Guests, guestOf(&vms[i], mean, rates[vms[i].Name]))
	}
	slices.SortFunc(next.Guests, func(a, b Guest) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Name, b.Name))
	})
	r.now = next
}
