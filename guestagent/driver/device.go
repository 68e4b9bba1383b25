package driver

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"vgpud/guestagent/allot"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
)

// Info describes a device.
type Info struct {
	Version        abi.Version  // negotiated
	Features       abi.Features // accepted
	Contexts       int          // the most that all programs of the guest can have
	Channels       int          // likewise
	MaxRingEntries int
	SharedBytes    int           // BAR2
	MemoryBytes    uint64        // GPU memory of this guest; 0 if unknown
	Vectors        int           // interrupt vectors that this driver can wait for
	PollWindow     time.Duration // how long the host polls a ring before it sleeps
	// UUID identifies the virtual GPU: it is the same each time the guest is started. Zero if the
	// host is older than version 1.2.
	UUID [abi.UUIDBytes]byte
	// Address is the function's address on the guest's PCI bus, such as "0000:00:05.0", or "" for a
	// device that is not on one.
	Address string
}

// Device is an open virtual GPU. Close must be called to free it.
type Device struct {
	bus       Bus
	info      Info
	allotment allot.Allotment // the part of the device that belongs to this program
	shared    []byte
	staging   *staging     // for windows
	rings     *staging     // for rings; the same as staging if the device has no area for rings
	learned   *cache.Cache // what was learned about kernels, if no Memory keeps it
	singleCPU bool         // the only processor also serves the device
	fewCPUs   bool         // polling for long would keep the host's processes from running

	regs     sync.Mutex // held for the register sequences that create and destroy contexts and channels
	contexts map[*Context]struct{}
	slots    []*Channel // by channel slot; guarded by slotsMu
	slotsMu  sync.RWMutex

	changed   notifier // notified on every change of a context's or channel's state
	stop      context.CancelFunc
	workers   sync.WaitGroup
	dispatch  []sync.Once // starts a vector's goroutine on its first use
	life      context.Context
	down      chan struct{} // closed by Close or when the device is gone
	downErr   error         // why; set before down is closed
	endOnce   sync.Once
	closeOnce sync.Once
}

// Open negotiates with the device behind bus. The bus belongs to the Device from then on, also
// after an error. ctx bounds only the call.
func Open(ctx context.Context, bus Bus) (*Device, error) {
	d := &Device{bus: bus, shared: bus.Shared(), contexts: map[*Context]struct{}{}, down: make(chan struct{}), learned: cache.New()}
	d.life, d.stop = context.WithCancel(context.Background())
	_, outside := bus.(remoteServed)
	d.singleCPU = runtime.NumCPU() == 1 && !outside
	d.fewCPUs = runtime.NumCPU() < manyCPUs && !outside
	if err := d.negotiate(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the virtual GPU: %w", err), d.Close())
	}
	d.slots = make([]*Channel, abi.MaxChannels)
	d.staging = newStaging(d.allotment.Shared)
	d.rings = d.staging
	if d.allotment.Rings.Size > 0 {
		d.rings = newStaging(d.allotment.Rings)
	}
	d.dispatch = make([]sync.Once, bus.Vectors())
	d.startDispatch(0)
	if gone := bus.Done(); gone != nil {
		d.workers.Go(func() {
			select {
			case <-gone:
				d.end(d.gone())
			case <-d.life.Done():
			}
		})
	}
	return d, nil
}

// Info describes the device as it was when it was opened.
func (d *Device) Info() Info { return d.info }

// Close destroys every context and frees the device. Calls under way return [ErrClosed]. Closing a
// Device again does nothing.
func (d *Device) Close() error {
	var err error
	d.closeOnce.Do(func() { err = d.close() })
	return err
}

func (d *Device) close() error {
	d.regs.Lock()
	open := make([]*Context, 0, len(d.contexts))
	for c := range d.contexts {
		open = append(open, c)
	}
	d.regs.Unlock()
	var err error
	for _, c := range open {
		err = errors.Join(err, c.Close())
	}
	d.end(ErrClosed)
	d.stop()
	d.workers.Wait()
	d.slotsMu.RLock()
	remaining := slices.Clone(d.slots) // channels that the host did not release
	d.slotsMu.RUnlock()
	for _, ch := range remaining {
		if ch != nil {
			ch.fail(ErrClosed)
			ch.release()
		}
	}
	return errors.Join(err, d.bus.Close())
}

// end makes every wait return err.
func (d *Device) end(err error) {
	d.endOnce.Do(func() {
		d.downErr = err
		close(d.down)
		d.changed.notify()
	})
}

// ended returns why the device can't be used any more, or nil.
func (d *Device) ended() error {
	select {
	case <-d.down:
		return d.downErr
	default:
		return nil
	}
}

// gone returns why the device no longer exists, or nil. It knows as soon as the bus does.
func (d *Device) gone() error {
	select {
	case <-d.bus.Done():
	default:
		return nil
	}
	if b, ok := d.bus.(interface{ Cause() error }); ok {
		return b.Cause()
	}
	return ErrGone
}

// rootCause returns the error for a channel that failed with err. The memory of a device that was
// just unplugged can read as anything, such as a ring that the host corrupted.
func (d *Device) rootCause(err error) error {
	if !errors.Is(err, ErrGone) {
		_, _ = d.bus.Read(abi.RegMagic) // notices if the device is gone
	}
	if gone := d.gone(); gone != nil {
		return gone
	}
	return err
}

// startDispatch starts, once for each vector, the goroutine that waits for it and wakes the
// channels that use it. Vector 0 is also the state vector and wakes all of them.
func (d *Device) startDispatch(vector int) {
	if vector >= len(d.dispatch) {
		return
	}
	d.dispatch[vector].Do(func() {
		d.workers.Go(func() {
			for d.bus.Wait(d.life, vector) == nil {
				if vector == 0 {
					d.changed.notify()
				}
				d.slotsMu.RLock()
				for _, c := range d.slots {
					if c != nil && (vector == 0 || c.vector == vector) {
						c.wake()
					}
				}
				d.slotsMu.RUnlock()
			}
		})
	})
}

// word reads a word of BAR2.
func (d *Device) word(offset int) uint32 { return abi.LoadWord(d.shared, offset) }

// statePollInterval is how often states are polled on a bus without interrupts.
const statePollInterval = 200 * time.Microsecond

// awaitWords waits until ok, which reads words of BAR2, returns true.
func (d *Device) awaitWords(ctx context.Context, ok func() bool) error {
	var tick <-chan time.Time
	if d.bus.Vectors() == 0 {
		t := time.NewTicker(statePollInterval)
		defer t.Stop()
		tick = t.C
	}
	for {
		changed := d.changed.wait()
		var reached bool
		if err := d.touch(func() { reached = ok() }); err != nil {
			return err
		}
		if reached {
			return nil
		}
		select {
		case <-changed:
		case <-tick:
		case <-d.down:
			return d.downErr
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// notifier lets goroutines wait for an event that recurs.
type notifier struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that is closed by the next notify. The caller checks its condition after
// this call.
func (g *notifier) wait() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch == nil {
		g.ch = make(chan struct{})
	}
	return g.ch
}

// notify wakes all goroutines that wait.
func (g *notifier) notify() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch != nil {
		close(g.ch)
		g.ch = nil
	}
}
