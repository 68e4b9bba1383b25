package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/gpu/nvidia/rm"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
	"vgpud/mediator/ipc"
	"vgpud/mediator/launchqueue"
	"vgpud/mediator/scheduler"
	"vgpud/mediator/vgpu/abi"
	guestproc "vgpud/mediator/vm"
)

// The kinds of GPUs: those in software, and those of NVIDIA's driver.
const (
	kindSoft   = "soft"
	kindNVIDIA = "nvidia"
)

// device is one physical GPU.
type device struct {
	config GPUConfig // but for what can be changed while the daemon runs
	log    *slog.Logger
	// features are what guests' executors implement on the GPU.
	features abi.Features
	loop     *scheduler.Loop
	lost     atomic.Uint64 // guests whose virtual GPU was lost
	telling  sync.Mutex    // held while guests are told whether the GPU is being drained

	mu       sync.Mutex
	cordon   cordon
	hardware *hardware // what NVIDIA's driver reports; nil until it has reported anything
}

// openDevices opens the GPUs, all at once: a driver may take a while for each, and guests wait for the
// next daemon meanwhile. If one can't be opened, s.devices has the others.
func (s *Service) openDevices(ctx context.Context) error {
	all := s.o.Config.GPUs
	devices, errs := make([]*device, len(all)), make([]error, len(all))
	var opening sync.WaitGroup
	for i, c := range all {
		opening.Go(func() {
			d, err := s.openDevice(ctx, c)
			if err != nil {
				errs[i] = fmt.Errorf("GPU %s: %w", c.Name, err)
				return
			}
			devices[i] = d
		})
	}
	opening.Wait()
	for _, d := range devices {
		if d != nil {
			s.devices = append(s.devices, d)
		}
	}
	return errors.Join(errs...)
}

// openDevice opens a GPU and prepares to share it.
func (s *Service) openDevice(ctx context.Context, c GPUConfig) (*device, error) {
	watching, err := c.Accounting.watching(len(s.o.Config.GPUs))
	if err != nil {
		return nil, err
	}
	open := func(ctx context.Context) (gpu.Monitor, error) {
		m, err := s.o.Open(ctx, c.ipcGPU())
		if err == nil && c.Kind == kindSoft {
			if err = s.sandboxes.Share(c.Socket); err != nil {
				err = errors.Join(err, m.Close())
			}
		}
		if err != nil {
			return nil, err
		}
		return m, nil
	}
	d := &device{config: c, log: s.log}
	if s.o.Features != nil {
		d.features = s.o.Features(c.Kind)
	}
	d.loop, err = scheduler.OpenLoop(ctx, scheduler.Options{
		Name: c.Name, Clock: s.clock, Log: s.log, Policy: c.Policy, PolicyOptions: fairshare.Options{MaxOverhead: c.MaxOverhead, HandOver: scheduler.HandOver},
		Control: c.control(), EvictionDeadline: s.o.Config.evictionDeadline(), BusyWait: c.busyWait(),
	}, scheduler.LoopOptions{Open: open, Watching: watching, Pinned: s.pinned, CPU: s.cpu})
	return d, err
}

// ipcGPU returns the GPU as a guest's processes are told of it: NVIDIA's by its UUID, whatever the
// configuration names it by, since an index is another GPU's when one is gone.
func (d *device) ipcGPU() ipc.GPU {
	g := d.config.ipcGPU()
	if g.Kind == kindNVIDIA {
		g.Device = uuidText(d.loop.Properties().UUID)
	}
	return g
}

// problem returns why the GPU can't be used, by itself or by what its driver reports; empty if it
// can.
func (d *device) problem(st *scheduler.Status) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if st.Problem == "" && d.hardware != nil {
		return d.hardware.health.Problem()
	}
	return st.Problem
}

// gpu returns the GPU as the API shows it.
func (d *device) gpu() api.GPU {
	counts := d.loop.Counts()
	st, w := d.loop.Status(), d.loop.WatcherStatus()
	problem := d.problem(&st)
	g := api.GPU{
		Name: d.config.Name, Kind: d.config.Kind, Model: st.Properties.Name, SMs: st.Properties.SMs, MemoryBytes: st.Properties.MemoryBytes,
		Policy: st.Policy, LostVMs: d.lost.Load(), Healthy: problem == "", Problem: problem,
		BusyRatio: st.BusyRatio, BusySeconds: st.Busy.Seconds(), IdleSeconds: st.Idle.Seconds(), SwitchingSeconds: st.Switching.Seconds(),
		Switches: st.Switches, Rounds: st.Rounds,
		Overruns: counts.Overruns, OverrunSeconds: counts.Overrun.Seconds(),
		ByKernel: st.ByKernel, Launches: api.Launches(st.Launches), Evictions: apiEvictions(&st.Evictions), Prediction: apiPrediction(st.Accuracy),
		WatchedSeconds: st.Watched.Seconds(), Polls: st.Polls, Gaps: st.Gaps, GapSeconds: st.GapTime.Seconds(),
		AccountingSource: w.Source, AccountingSourceReason: w.SourceReason, AccountingCPUSeconds: w.CPU.Seconds(),
		RealTime: w.RealTime, RealTimeProblem: w.RealTimeProblem, RecordsLost: w.RecordsLost, RecordPauses: w.RecordPauses, RecordPaused: w.RecordPaused,
		EventKernels: d.features&abi.FeatureEventKernels != 0,
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	g.Cordoned, g.Draining = d.cordon.Cordoned, d.cordon.Draining
	if d.hardware != nil {
		g.Hardware = d.hardware.api()
	}
	return g
}

func apiEvictions(e *launchqueue.EvictionSummary) api.Evictions {
	a := api.Evictions{Count: e.Count, Seconds: e.Sum.Seconds(), P50: e.P50.Seconds(), P99: e.P99.Seconds(), Asked: api.Asked(e.Asked)}
	a.Buckets = apiBuckets(&e.UpTo)
	return a
}

// apiHistogram returns a guest's evictions, without buckets if there are none.
func apiHistogram(h *launchqueue.Histogram) api.Histogram {
	a := api.Histogram{Count: h.Count, Seconds: h.Sum.Seconds()}
	if h.Count > 0 {
		upTo := h.UpTo()
		a.Buckets = apiBuckets(&upTo)
	}
	return a
}

func apiBuckets(upTo *[len(launchqueue.EvictionBounds)]uint64) []api.Bucket {
	all := make([]api.Bucket, len(upTo))
	for i, bound := range launchqueue.EvictionBounds {
		all[i] = api.Bucket{UpTo: bound.Seconds(), Count: upTo[i]}
	}
	return all
}

func apiPrediction(a launchqueue.Accuracy) api.Prediction {
	return api.Prediction{Launches: a.Launches, PredictedSeconds: a.Predicted.Seconds(), MeasuredSeconds: a.Measured.Seconds(), ErrorRatio: a.Error}
}

// hardware is what NVIDIA's driver reports about one GPU. It is pure.
type hardware struct {
	uuid   string
	gpu    inventory.GPU
	driver string
	cuda   int
	health inventory.Health
	fresh  bool   // whether the last sample still holds
	silent string // why nothing is reported; empty if it is
}

// uuidText returns a UUID as the driver writes it.
func uuidText(u [16]byte) string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// update takes a report. If it is an error of this GPU, update returns that.
func (h *hardware) update(m *inventory.Message) (x inventory.Xid, failed bool) {
	switch {
	case m.Error != nil:
		h.silent, h.fresh = m.Error.Text, false
	case m.Inventory != nil:
		h.driver, h.cuda = m.Inventory.Driver, m.Inventory.CUDA
		h.gpu, h.silent = inventory.GPU{}, fmt.Sprintf("the driver's list of GPUs has no %s", h.uuid)
		for _, g := range m.Inventory.GPUs {
			if g.UUID == h.uuid {
				h.gpu, h.silent = g, ""
			}
		}
	case m.Xid != nil && m.Xid.UUID == h.uuid:
		return h.health.Xid(m.Xid.Xid), true
	}
	for _, s := range m.Samples {
		if s.UUID == h.uuid {
			h.health.Sample(s)
			h.fresh = true
		}
	}
	return inventory.Xid{}, false
}

// warnings returns what an operator should change, or know.
func (h *hardware) warnings() (all []string) {
	if h.driver != "" {
		if nearest, known := rm.KnownDriver(h.driver); !known {
			all = append(all, fmt.Sprintf("driver %s is not known to this version of vgpud, nearest is %s: what can't be probed is left out (`vgpuctl doctor` says what works)", h.driver, nearest))
		}
	}
	return append(all, h.gpu.Warnings()...)
}

// api returns what the API shows.
func (h *hardware) api() *api.Hardware {
	a := &api.Hardware{
		UUID: h.uuid, PCI: h.gpu.PCI, Driver: h.driver, MIG: h.gpu.MIG, Persistence: h.gpu.Persistence,
		ComputeMode: h.gpu.ComputeMode, Problem: h.silent, Warnings: h.warnings(),
	}
	if h.cuda > 0 {
		a.CUDA = fmt.Sprintf("%d.%d", h.cuda/1000, h.cuda%1000/10)
	}
	for _, x := range h.health.Xids() {
		a.Xids = append(a.Xids, api.XidCount{Xid: x.Number, Count: x.Count, Text: x.String()})
	}
	if !h.fresh {
		return a
	}
	s := h.health.Last()
	a.TemperatureCelsius, a.PowerWatts, a.PowerLimitWatts = s.TemperatureCelsius, s.PowerWatts, s.PowerLimitWatts
	a.SMClockHertz, a.MemoryClockHertz, a.MemoryUsedBytes = s.SMClockHertz, s.MemoryClockHertz, s.MemoryUsedBytes
	a.BusyRatio, a.MemoryBusyRatio, a.Throttled = s.BusyRatio, s.MemoryBusyRatio, s.Throttled
	a.ECCCorrected, a.ECCUncorrected = s.ECCCorrected, s.ECCUncorrected
	return a
}

// report takes what NVIDIA's driver reports about the host's GPUs. limited is the log for what a
// guest can provoke.
func (d *device) report(m *inventory.Message, limited *slog.Logger) {
	uuid := d.loop.Properties().UUID
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hardware == nil {
		d.hardware = &hardware{uuid: uuidText(uuid)}
	}
	h := d.hardware
	before := h.health.Problem()
	if x, failed := h.update(m); failed {
		limited.Warn("error on a GPU", events.Kind(events.GPUError), "gpu", d.config.Name, "xid", x.Number, "what", x.What, "do", x.Do)
	}
	if m.Inventory != nil {
		for _, w := range h.warnings() {
			d.log.Warn("GPU warning", events.Kind(events.GPUWarning), "gpu", d.config.Name, "warning", w)
		}
	}
	switch after := h.health.Problem(); {
	case after == before:
	case after != "":
		d.log.Error("GPU can't be used", events.Kind(events.GPUFailed), "gpu", d.config.Name, "err", after)
	default:
		d.log.Info("GPU can be used again", events.Kind(events.GPURecovered), "gpu", d.config.Name)
	}
}

// followInventory passes on what NVIDIA's driver reports about its GPUs, until ctx ends.
func (s *Service) followInventory(ctx context.Context) {
	var nvidia []*device
	for _, d := range s.devices {
		if d.config.Kind == kindNVIDIA {
			nvidia = append(nvidia, d)
		}
	}
	if s.o.Inventory == nil || len(nvidia) == 0 {
		return
	}
	limited := slog.New(guestproc.LimitLog(s.log.Handler(), s.clock))
	report := func(m inventory.Message) {
		for _, d := range nvidia {
			d.report(&m, limited)
		}
	}
	if err := s.o.Inventory(ctx, report); err != nil {
		s.log.Warn("the GPUs' health is not watched", "err", err)
		report(inventory.Message{Error: &inventory.Problem{Text: err.Error()}})
	}
}
