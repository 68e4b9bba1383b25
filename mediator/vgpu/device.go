package vgpu

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"

	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/pci"
	"vgpud/vfio/vfiouser"
)

// Device is the virtual GPU as a [vfiouser.Device]: [registers] with a lock, shared memory,
// interrupts and a backend. Its methods for the backend ([Device.ContextReady] and the like) may be
// called from any goroutine.
//
// It deliberately has no DMAMapper: the server acknowledges a client's mappings and closes their
// descriptors at once.
type Device struct {
	cfg     Config
	backend Backend
	log     *slog.Logger
	config  *pci.Space // used by the client's goroutine only

	mu        sync.Mutex
	regs      *registers
	shared    *shared    // nil only if it could not be created
	events    *eventArea // nil without event kernels, and if it could not be created
	sharedErr error
	session   *vfiouser.Session // nil without a client
	signals   uint64            // state interrupts raised
	// missed reports whether states changed while the guest did not listen to the state vector, as
	// it does not for a moment when its VMM sets interrupts up anew.
	missed bool

	// actions is the client goroutine's copy of registers.actions.
	actions []action
}

var (
	_ vfiouser.Device    = (*Device)(nil)
	_ vfiouser.IRQStater = (*Device)(nil)
)

// New creates a device that drives backend. Close frees its memory. log may be nil.
func New(cfg Config, backend Backend, log *slog.Logger) (*Device, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("virtual GPU: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Device{cfg: cfg, backend: backend, log: log, regs: newRegisters(cfg)}
	if d.config, err = newConfigSpace(cfg); err != nil {
		return nil, fmt.Errorf("virtual GPU: configuration space: %w", err)
	}
	if err := d.allocShared(); err != nil {
		return nil, fmt.Errorf("virtual GPU: %w", err)
	}
	return d, nil
}

// Config returns the configuration, with defaults filled in.
func (d *Device) Config() Config { return d.cfg }

// Close frees the shared memory. The server must have ended.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, events := d.shared, d.events
	d.shared, d.events = nil, nil
	if s == nil {
		return events.close()
	}
	return errors.Join(s.close(), events.close())
}

// Shared returns BAR2's memfd, or nil without shared memory. The device owns it: a backend
// duplicates it, or passes it on during a call. It stays the same until the backend's Reset has
// returned after the client's end; the next client gets a new one, since the last client may keep
// its mapping.
func (d *Device) Shared() *os.File {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shared == nil {
		return nil
	}
	return d.shared.file
}

// Vector returns a duplicate of the eventfd that raises an MSI vector, which the caller closes, or
// nil if the guest does not listen to it. The guest holds the same open file: a write may block
// unless a poll found room.
func (d *Device) Vector(vector int) (*os.File, error) {
	d.mu.Lock()
	s := d.session
	d.mu.Unlock()
	if s == nil || vector < 0 || vector >= d.cfg.Vectors {
		return nil, nil
	}
	return s.Eventfd(vfiouser.IRQMSI, uint32(vector))
}

// Describe implements [vfiouser.Device].
func (d *Device) Describe() vfiouser.Description {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shared == nil {
		d.sharedErr = d.allocShared()
	}
	const rw = vfiouser.RegionFlagRead | vfiouser.RegionFlagWrite
	desc := vfiouser.Description{
		Regions: make([]vfiouser.Region, vfiouser.NumRegions),
		IRQs:    make([]vfiouser.IRQ, vfiouser.NumIRQs),
	}
	desc.Regions[vfiouser.RegionBAR0] = vfiouser.Region{Size: abi.BAR0Size, Flags: rw}
	desc.Regions[vfiouser.RegionBAR2] = vfiouser.Region{Size: uint64(d.cfg.SharedBytes), Flags: rw}
	if d.shared != nil {
		desc.Regions[vfiouser.RegionBAR2].File = d.shared.file
	}
	if d.events != nil {
		desc.Regions[vfiouser.RegionBAR4] = vfiouser.Region{Size: abi.EventAreaBytes, Flags: rw, File: d.events.file}
	}
	desc.Regions[vfiouser.RegionConfig] = vfiouser.Region{Size: uint64(d.config.Len()), Flags: rw}
	desc.IRQs[vfiouser.IRQMSI] = vfiouser.IRQ{Count: uint32(d.cfg.Vectors), Flags: vfiouser.IRQFlagNoResize}
	desc.IRQs[vfiouser.IRQErr] = vfiouser.IRQ{Count: 1}
	desc.IRQs[vfiouser.IRQReq] = vfiouser.IRQ{Count: 1}
	return desc
}

// Attach implements [vfiouser.Device].
func (d *Device) Attach(s *vfiouser.Session) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sharedErr != nil {
		return d.sharedErr
	}
	d.session = s
	d.log.Info("client attached", "pid", s.Peer().PID, "uid", s.Peer().UID)
	return nil
}

// Detach implements [vfiouser.Device]. It drops everything of the client's, its memory too.
func (d *Device) Detach(s *vfiouser.Session) {
	d.mu.Lock()
	d.session = nil
	d.missed = false
	d.regs.reset()
	d.regs.actions, d.regs.dirty = d.regs.actions[:0], dirty{}
	d.mu.Unlock()
	d.backend.Reset()
	d.config.Reset()
	d.mu.Lock()
	defer d.mu.Unlock()
	old, events := d.shared, d.events
	d.shared, d.events = nil, nil
	d.sharedErr = nil
	if old != nil {
		if err := errors.Join(old.close(), events.close()); err != nil {
			d.log.Error("shared memory", "error", err)
		}
	}
	d.log.Info("client gone")
}

// Reset implements [vfiouser.Device].
func (d *Device) Reset() error {
	d.mu.Lock()
	d.missed = false
	d.regs.reset()
	d.regs.actions = append(d.regs.actions[:0], action{kind: resetAll})
	d.config.Reset()
	return d.finish()
}

// RegionRead implements [vfiouser.Device].
func (d *Device) RegionRead(region uint32, offset uint64, p []byte) error {
	switch region {
	case vfiouser.RegionBAR0:
		d.mu.Lock()
		d.regs.read(offset, p)
		d.mu.Unlock()
		return nil
	case vfiouser.RegionBAR2:
		return accessShared(d.Shared(), offset, p, (*os.File).ReadAt)
	case vfiouser.RegionBAR4:
		return accessShared(d.Events(), offset, p, (*os.File).ReadAt)
	case vfiouser.RegionConfig:
		return d.config.Read(offset, p)
	}
	return syscall.EINVAL
}

// RegionWrite implements [vfiouser.Device].
func (d *Device) RegionWrite(region uint32, offset uint64, p []byte) error {
	switch region {
	case vfiouser.RegionBAR0:
		d.mu.Lock()
		d.regs.write(offset, p)
		return d.finish()
	case vfiouser.RegionBAR2:
		return accessShared(d.Shared(), offset, p, (*os.File).WriteAt)
	case vfiouser.RegionBAR4:
		return accessShared(d.Events(), offset, p, (*os.File).WriteAt)
	case vfiouser.RegionConfig:
		return d.writeConfig(offset, p)
	}
	return syscall.EINVAL
}

// accessShared accesses BAR2 or BAR4 for a client that does not map it.
func accessShared(file *os.File, offset uint64, p []byte, f func(*os.File, []byte, int64) (int, error)) error {
	if file == nil {
		return syscall.EIO
	}
	_, err := f(file, p, int64(offset))
	return err
}

// IRQsChanged implements [vfiouser.IRQStater]. A guest that sleeps until states change is woken if
// they have changed while it could not be interrupted.
func (d *Device) IRQsChanged(index, start, count uint32) {
	if index != vfiouser.IRQMSI {
		return
	}
	d.mu.Lock()
	if v := d.regs.stateVec; d.missed && v >= start && v-start < count {
		d.interrupt()
	}
	d.mu.Unlock()
	d.backend.VectorsChanged(int(start), int(count))
}

// finish publishes the state machine's changes, unlocks, and calls the backend. Preconditions: mu
// is held, and the caller is the client's goroutine.
func (d *Device) finish() error {
	d.publish()
	d.actions = append(d.actions[:0], d.regs.actions...)
	d.regs.actions = d.regs.actions[:0]
	d.mu.Unlock()
	var errs error
	for i := range d.actions {
		errs = errors.Join(errs, d.do(&d.actions[i]))
	}
	return errs
}

// do makes one call to the backend.
func (d *Device) do(a *action) error {
	switch a.kind {
	case createContext:
		d.backend.CreateContext(a.context)
	case resetContext:
		d.backend.ResetContext(a.context)
	case destroyContext:
		d.backend.DestroyContext(a.context.ContextRef)
	case openChannel:
		d.backend.OpenChannel(a.channel)
	case closeChannel:
		d.backend.CloseChannel(a.channel.ChannelRef)
	case kick:
		d.backend.Kick(a.channel.ChannelRef)
	case kickEvents:
		d.kickEvents(a.event)
	case resetAll:
		d.backend.Reset()
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.shared == nil {
			return nil
		}
		return errors.Join(d.shared.clear(d.regs.generation), d.clearEvents())
	}
	return nil
}

// publish writes the changes to BAR2 and raises the state vector for changes that the guest did not
// just cause. Preconditions: mu is held.
func (d *Device) publish() {
	changed := d.regs.dirty
	if changed == (dirty{}) {
		return
	}
	d.regs.dirty = dirty{}
	if d.shared != nil {
		d.shared.publish(d.regs, &changed)
	}
	if changed.event && d.session != nil && d.regs.stateVec != abi.NoVector {
		d.interrupt()
	}
}

// interrupt raises the state vector, or notes that the guest does not listen to it. Preconditions:
// mu is held, and there is a client.
func (d *Device) interrupt() {
	d.missed = !d.session.Trigger(vfiouser.IRQMSI, d.regs.stateVec)
	if !d.missed {
		d.signals++
	}
}

// allocShared creates the shared memory. Preconditions: mu is held.
func (d *Device) allocShared() (err error) {
	if d.shared, err = newShared(d.cfg, d.regs.generation); err != nil || !d.cfg.hasEvents() {
		return err
	}
	if d.events, err = newEventArea(); err != nil {
		err = errors.Join(err, d.shared.close())
		d.shared = nil
	}
	return err
}
