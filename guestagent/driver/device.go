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

// Info is what a device says about itself.
type Info struct {
	Version        abi.Version  // negotiated
	Features       abi.Features // accepted
	Contexts       int          // how many there can be, of all the guest's processes
	Channels       int
	MaxRingEntries int
	SharedBytes    int           // BAR2
	MemoryBytes    uint64        // of the GPU, for this guest; 0: not told
	Vectors        int           // interrupt vectors that this driver can wait for
	PollWindow     time.Duration // for how long the host polls a ring before it sleeps
}

// Device is an open virtual GPU. Close must be called to free it.
type Device struct {
	bus     Bus
	info    Info
	mine    allot.Allotment // what of the device is ours
	shared  []byte
	staging *staging     // of windows
	rings   *staging     // staging itself, where the device has no part for rings
	learned *cache.Cache // of kernels, where nobody else keeps it
	alone   bool         // with one processor that serves the device, too
	few     bool         // with so few that a long look is in the way of who serves the device

	regs     sync.Mutex // creating and destroying contexts and channels: sequences of register accesses
	contexts map[*Context]struct{}
	slots    []*Channel // by channel slot; guarded by chans
	chans    sync.RWMutex

	states  gate // opens on every change of state
	stop    context.CancelFunc
	workers sync.WaitGroup
	pumps   []sync.Once // one waits for each vector, from its first use
	life    context.Context
	down    chan struct{} // closed by Close or when the device is gone
	downErr error         // why; set before down is closed
	ending  sync.Once
	closing sync.Once
}

// Open negotiates with the device behind bus, which belongs to the Device from then
// on, also on an error. ctx bounds opening alone.
func Open(ctx context.Context, bus Bus) (*Device, error) {
	d := &Device{bus: bus, shared: bus.Shared(), contexts: map[*Context]struct{}{}, down: make(chan struct{}), learned: cache.New()}
	d.life, d.stop = context.WithCancel(context.Background())
	_, outside := bus.(outsider)
	d.alone = runtime.NumCPU() == 1 && !outside
	d.few = runtime.NumCPU() < fewProcessors && !outside
	if err := d.negotiate(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the virtual GPU: %w", err), d.Close())
	}
	d.slots = make([]*Channel, abi.MaxChannels)
	d.staging = newStaging(d.mine.Shared)
	d.rings = d.staging
	if d.mine.Rings.Size > 0 {
		d.rings = newStaging(d.mine.Rings)
	}
	d.pumps = make([]sync.Once, bus.Vectors())
	d.pump(0)
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

// Info returns what the device said when it was opened.
func (d *Device) Info() Info { return d.info }

// Close ends every context and frees the device. Calls under way return [ErrClosed].
// Closing it again does nothing.
func (d *Device) Close() error {
	var err error
	d.closing.Do(func() { err = d.close() })
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
	d.chans.RLock()
	left := slices.Clone(d.slots) // those that the host did not let go of
	d.chans.RUnlock()
	for _, ch := range left {
		if ch != nil {
			ch.fail(ErrClosed)
			ch.release()
		}
	}
	return errors.Join(err, d.bus.Close())
}

// end makes every wait return err.
func (d *Device) end(err error) {
	d.ending.Do(func() {
		d.downErr = err
		close(d.down)
		d.states.open()
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

// gone returns why the device is not there any more, or nil. It knows as soon as the
// bus does.
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

// why returns the reason for an error that a channel fails with: the memory of a
// device that was unplugged just now can read as anything, such as a ring that the
// host broke.
func (d *Device) why(err error) error {
	if !errors.Is(err, ErrGone) {
		_, _ = d.bus.Read(abi.RegMagic) // finds out
	}
	if gone := d.gone(); gone != nil {
		return gone
	}
	return err
}

// pump starts, once for each vector, the goroutine that waits for it and wakes the
// channels that use it; on vector 0, which is the state vector too, all of them.
func (d *Device) pump(vector int) {
	if vector >= len(d.pumps) {
		return
	}
	d.pumps[vector].Do(func() {
		d.workers.Go(func() {
			for d.bus.Wait(d.life, vector) == nil {
				if vector == 0 {
					d.states.open()
				}
				d.chans.RLock()
				for _, c := range d.slots {
					if c != nil && (vector == 0 || c.vector == vector) {
						c.poke()
					}
				}
				d.chans.RUnlock()
			}
		})
	})
}

// word reads a word of BAR2.
func (d *Device) word(offset int) uint32 { return abi.LoadWord(d.shared, offset) }

// pollPause is how often states are looked at where there are no interrupts.
const pollPause = 200 * time.Microsecond

// await waits until ok, which looks at words of BAR2, is true.
func (d *Device) await(ctx context.Context, ok func() bool) error {
	var tick <-chan time.Time
	if d.bus.Vectors() == 0 {
		t := time.NewTicker(pollPause)
		defer t.Stop()
		tick = t.C
	}
	for {
		changed := d.states.wait()
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

// gate lets goroutines wait for an event that happens again and again.
type gate struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that is closed at the next open. What is waited for must
// be looked at after the call.
func (g *gate) wait() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch == nil {
		g.ch = make(chan struct{})
	}
	return g.ch
}

// open wakes everybody who waits.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch != nil {
		close(g.ch)
		g.ch = nil
	}
}
