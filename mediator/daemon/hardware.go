package daemon

import (
	"context"
	"fmt"
	"log/slog"

	"vgpud/gpu/nvidia/inventory"
	"vgpud/gpu/nvidia/rm"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	process "vgpud/mediator/vm"
)

// The kinds of GPUs: those in software, and those that NVIDIA's driver drives.
const (
	kindSoft   = "soft"
	kindNVIDIA = "nvidia"
)

// link is the GPU as a guest's processes are told of it: one of NVIDIA's by its UUID,
// whatever the configuration has it by, since an index is another GPU's when one is gone.
func (s *share) link() ipc.GPU {
	g := s.config.link()
	if g.Kind == kindNVIDIA {
		g.Device = uuidText(s.open().props.UUID)
	}
	return g
}

// hardware is what NVIDIA's driver says of one GPU that it drives. It is pure: the
// share tells it what was heard.
type hardware struct {
	uuid   string
	said   inventory.GPU // of the inventory
	driver string
	cuda   int
	health inventory.Health
	fresh  bool   // whether the last sample still stands
	deaf   string // why nothing is heard
}

// uuidText is a UUID as the driver writes it.
func uuidText(u [16]byte) string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// hear takes in what was said, and returns the error of this GPU that it is.
func (h *hardware) hear(m *inventory.Message) (x inventory.Xid, failed bool) {
	switch {
	case m.Error != nil:
		h.deaf, h.fresh = m.Error.Text, false
	case m.Inventory != nil:
		h.driver, h.cuda = m.Inventory.Driver, m.Inventory.CUDA
		h.said, h.deaf = inventory.GPU{}, fmt.Sprintf("the driver's list of GPUs has no %s", h.uuid)
		for _, g := range m.Inventory.GPUs {
			if g.UUID == h.uuid {
				h.said, h.deaf = g, ""
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

// warnings are what an operator should change, or know.
func (h *hardware) warnings() (all []string) {
	if h.driver != "" {
		if nearest, known := rm.KnownDriver(h.driver); !known {
			all = append(all, fmt.Sprintf("driver %s is not known to this version of vgpud, nearest is %s: what can't be probed is left out (`vgpuctl doctor` says what works)", h.driver, nearest))
		}
	}
	return append(all, h.said.Warnings()...)
}

// show is what the API shows.
func (h *hardware) show() *api.Hardware {
	a := &api.Hardware{
		UUID: h.uuid, PCI: h.said.PCI, Driver: h.driver, MIG: h.said.MIG, Persistence: h.said.Persistence,
		ComputeMode: h.said.ComputeMode, Problem: h.deaf, Warnings: h.warnings(),
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

// wrong is why the GPU can't be used, by itself or by its driver's word; empty
// where it can. The caller holds mu.
func (s *share) wrong() string {
	if s.problem == "" && s.hardware != nil {
		return s.hardware.health.Problem()
	}
	return s.problem
}

// heard takes in what NVIDIA's driver said of the host's GPUs. log is for what a
// guest can provoke.
func (s *share) heard(m *inventory.Message, log *slog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hardware == nil {
		s.hardware = &hardware{uuid: uuidText(s.opened.props.UUID)}
	}
	before := s.hardware.health.Problem()
	if x, failed := s.hardware.hear(m); failed {
		log.Warn("error on a GPU", "gpu", s.config.Name, "xid", x.Number, "what", x.What, "do", x.Do)
	}
	if m.Inventory != nil {
		for _, w := range s.hardware.warnings() {
			s.log.Warn("GPU", "gpu", s.config.Name, "warning", w)
		}
	}
	switch after := s.hardware.health.Problem(); {
	case after == before:
	case after != "":
		s.log.Error("GPU can't be used", "gpu", s.config.Name, "err", after)
	default:
		s.log.Info("GPU can be used again", "gpu", s.config.Name)
	}
}

// followInventory hears what NVIDIA's driver says of its GPUs, until ctx ends.
func (s *Service) followInventory(ctx context.Context) {
	var driven []*share
	for _, sh := range s.shares {
		if sh.config.Kind == kindNVIDIA {
			driven = append(driven, sh)
		}
	}
	if s.o.Inventory == nil || len(driven) == 0 {
		return
	}
	quiet := slog.New(process.LimitLog(s.log.Handler(), s.clock))
	hear := func(m inventory.Message) {
		for _, sh := range driven {
			sh.heard(&m, quiet)
		}
	}
	if err := s.o.Inventory(ctx, hear); err != nil {
		s.log.Warn("the GPUs' health is not watched", "err", err)
		hear(inventory.Message{Error: &inventory.Problem{Text: err.Error()}})
	}
}
