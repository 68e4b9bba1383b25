package nvidia

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/clock"
	"vgpud/gpu/nvidia/cuda"
)

// The times that the driver gives for events are differences, in milliseconds, as
// a float32. So they are taken to a reference event whose time on the GPU's clock
// is known, and which is never old.
const (
	// referenceEvery is how old a reference may be: a float32 tells 61 ns apart up
	// to here.
	referenceEvery = time.Second
	// chainFor is how long a reference's time may be told from the one before; one
	// that is older is of little use, and the kernel's reading stands alone.
	chainFor = 4 * time.Second
	// tightReading is how far apart the two events about the kernel that reads the
	// clock may be for a context's first reference to be taken at once.
	tightReading = 12 * time.Microsecond
	firstTries   = 8
)

// stampPTX stores the GPU's clock.
const stampPTX = `.version 6.4
.target sm_52
.address_size 64
.visible .entry stamp(.param .u64 at)
{
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [at];
	mov.u64 %rd2, %globaltimer;
	st.volatile.global.u64 [%rd1], %rd2;
	ret;
}
`

// gpuClock tells when events were reached, on the GPU's clock: PTIMER, which
// kernels read as %globaltimer and the context switches' record has too. Its
// reference is renewed every second of use on a stream beside the commands', by a
// kernel of one thread that stores the clock between two events.
type gpuClock struct {
	c      *Context
	host   clock.Clock
	stream cuda.Stream
	module cuda.Module
	kernel cuda.Function
	args   *cuda.Args
	mem    []byte
	stamp  *atomic.Uint64

	due atomic.Int64 // on the host's clock, when to renew

	mu     sync.Mutex
	ref    reference
	next   reference // being made
	after  cuda.Event
	asked  bool // next is on the GPU
	anchor pair
	rate   float64 // GPU nanoseconds per host nanosecond, less 1
}

// reference is an event whose time on the GPU's clock is known.
type reference struct {
	event cuda.Event
	gpu   time.Duration
	host  time.Duration // when it was asked for
}

// newGPUClock makes the clock of the current context and waits for its first
// reference.
func newGPUClock(c *Context, host clock.Clock) (*gpuClock, error) {
	k := &gpuClock{c: c, host: host, args: cuda.NewArgs()}
	if err := k.begin(); err != nil {
		return nil, fmt.Errorf("read the GPU's clock: %w", err)
	}
	return k, nil
}

func (k *gpuClock) begin() (err error) {
	d := k.c.drv
	if k.mem, err = pinned(d, 8); err != nil {
		return err
	}
	k.stamp = word(k.mem, 0)
	binary.LittleEndian.PutUint64(k.args.Params[:], uint64(address(k.mem)))
	var log string
	if k.module, log, err = d.ModuleLoadData([]byte(stampPTX)); err != nil {
		return fmt.Errorf("%w: %s", err, log)
	}
	if k.kernel, err = d.ModuleGetFunction(k.module, "stamp"); err != nil {
		return err
	}
	// The hardware has channels for few streams; those that share one wait for one
	// another. Zeroing does not mind.
	k.stream = k.c.zero.s
	for _, e := range []*cuda.Event{&k.ref.event, &k.next.event, &k.after} {
		if *e, err = d.EventCreate(cuda.EventBlockingSync); err != nil {
			return err
		}
	}
	// The first kernel of a context comes late. Of several the quickest counts.
	best := time.Duration(1<<63 - 1)
	for range firstTries {
		before := k.host.Now()
		if err := k.ask(before); err != nil {
			return err
		}
		if err := d.EventSynchronize(k.after); err != nil {
			return err
		}
		now := k.host.Now()
		gap, err := k.elapsed(k.next.event, k.after)
		if err != nil {
			return err
		}
		k.asked = false
		if gap >= best {
			continue
		}
		best = gap
		k.next.gpu = time.Duration(k.stamp.Load()) - gap/2
		k.anchor = pair{host: before + (now-before)/2, gpu: k.next.gpu}
		k.ref, k.next = k.next, k.ref
		if gap <= tightReading {
			break
		}
	}
	k.due.Store(int64(k.host.Now() + referenceEvery))
	return nil
}

// tick begins a new reference where the old one is due. It costs next to nothing
// where not. The context is current.
func (k *gpuClock) tick(now time.Duration) error {
	if int64(now) < k.due.Load() {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asked {
		return k.adopt()
	}
	return k.ask(now)
}

// ask puts a reading on the GPU.
func (k *gpuClock) ask(now time.Duration) error {
	d := k.c.drv
	k.next.host = now
	if err := d.EventRecord(k.next.event, k.stream); err != nil {
		return err
	}
	if err := d.LaunchKernel(k.kernel, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, k.stream, k.args, 8); err != nil {
		return err
	}
	if err := d.EventRecord(k.after, k.stream); err != nil {
		return err
	}
	k.asked = true
	return nil
}

// adopt makes the reading that is on the GPU the reference, if it is done.
func (k *gpuClock) adopt() error {
	done, err := k.c.drv.EventQuery(k.after)
	if err != nil || !done {
		return err
	}
	gap, err := k.elapsed(k.next.event, k.after)
	if err != nil {
		return err
	}
	read := time.Duration(k.stamp.Load())
	k.next.gpu = read - gap/2
	if k.next.host-k.ref.host < chainFor {
		// Told from the last one it is exact to the float; the reading keeps many such
		// steps from adding up.
		since, err := k.elapsed(k.ref.event, k.next.event)
		if err != nil {
			return err
		}
		k.next.gpu = min(max(k.ref.gpu+since, read-gap), read)
	}
	k.asked = false
	k.ref, k.next = k.next, k.ref
	now := k.host.Now()
	k.due.Store(int64(now + referenceEvery))
	k.steer(pair{host: k.ref.host, gpu: k.ref.gpu})
	return nil
}

// steer learns how fast the GPU's clock goes. The event may have been reached late
// after it was asked for, so the GPU's time is never ahead of what p says: only
// that moves the anchor.
func (k *gpuClock) steer(p pair) {
	const least = 500 * time.Millisecond
	if d := p.host - k.anchor.host; d >= least {
		late := p.gpu - k.anchor.gpu - d
		if late < d/1000 { // else it waited
			k.rate = float64(late) / float64(d)
			k.anchor = p
		}
	}
}

// estimate is the GPU's time at an instant of the host's clock.
func (k *gpuClock) estimate(host time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := host - k.anchor.host
	return k.anchor.gpu + d + time.Duration(float64(d)*k.rate)
}

// at is when an event was reached. The context is current.
func (k *gpuClock) at(e cuda.Event) (time.Duration, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asked {
		if err := k.adopt(); err != nil {
			return 0, err
		}
	}
	d, err := k.elapsed(k.ref.event, e)
	return k.ref.gpu + d, err
}

// elapsed is the time between two events that were reached.
func (k *gpuClock) elapsed(from, to cuda.Event) (time.Duration, error) {
	ms, err := k.c.drv.EventElapsedTime(from, to)
	return time.Duration(float64(ms) * 1e6), err
}
