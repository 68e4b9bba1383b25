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
	// tightReading is how much longer than the kernel that reads the clock the time
	// between the events about it may be for a context's first reference to be taken at
	// once: most of it passes before the kernel, while its launch is called.
	tightReading = 8 * time.Microsecond
	firstTries   = 8
	// stampAfter is about how long after a kernel's last reading of the clock the event
	// behind it is reached, where that was queued by then.
	stampAfter = time.Microsecond
)

// stampPTX stores the GPU's clock at its beginning, and again at its end 16 µs later,
// by when whatever was to come behind it has been queued.
const stampPTX = `.version 6.4
.target sm_52
.address_size 64
.visible .entry stamp(.param .u64 at)
{
	.reg .b64 %rd<5>;
	.reg .pred %p;
	ld.param.u64 %rd1, [at];
	mov.u64 %rd2, %globaltimer;
	st.volatile.global.u64 [%rd1], %rd2;
again:
	mov.u64 %rd3, %globaltimer;
	sub.u64 %rd4, %rd3, %rd2;
	setp.lt.u64 %p, %rd4, 16000;
	@%p bra again;
	st.volatile.global.u64 [%rd1+8], %rd3;
	ret;
}
`

// gpuClock tells when events were reached, on the GPU's clock: PTIMER, which
// kernels read as %globaltimer and the context switches' record has too. Its
// reference is renewed every second of use on a stream beside the commands', by a
// kernel of one thread that stores the clock, and the event behind it.
type gpuClock struct {
	c      *Context
	host   clock.Clock
	stream cuda.Stream
	module cuda.Module
	kernel cuda.Function
	args   *cuda.Args
	mem    []byte
	stamp  [2]*atomic.Uint64 // the kernel's beginning and end

	due atomic.Int64 // on the host's clock, when to renew

	mu     sync.Mutex
	ref    reference
	next   reference  // being made
	before cuda.Event // the kernel that makes it
	asked  bool       // next is on the GPU
	anchor pair
	rate   float64 // GPU nanoseconds per host nanosecond, less 1
}

// reference is an event whose time on the GPU's clock is known. pair is from the
// beginning of the kernel before it: on the host's clock it may have begun a little
// earlier than is said, or much later.
type reference struct {
	event cuda.Event
	at    time.Duration // on the GPU's clock
	pair
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
	if k.mem, err = pinned(d, 16); err != nil {
		return err
	}
	k.stamp = [2]*atomic.Uint64{word(k.mem, 0), word(k.mem, 8)}
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
	k.stream = k.c.zero.stream
	for _, e := range []*cuda.Event{&k.ref.event, &k.next.event, &k.before} {
		if *e, err = d.EventCreate(0); err != nil {
			return err
		}
	}
	// The first kernel of a context comes late. Of several the quickest counts.
	best := time.Duration(1<<63 - 1)
	for range firstTries {
		if err := k.ask(); err != nil {
			return err
		}
		if err := d.EventSynchronize(k.next.event); err != nil {
			return err
		}
		read, beside, err := k.read()
		if err != nil {
			return err
		}
		k.asked = false
		if beside >= best {
			continue
		}
		best = beside
		k.next.at = read + min(stampAfter, beside)
		k.anchor = k.next.pair
		k.ref, k.next = k.next, k.ref
		if beside <= tightReading {
			break
		}
	}
	k.due.Store(int64(k.host.Now() + referenceEvery))
	return nil
}

// tick begins a new reference when the old one is due. It costs next to nothing
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
	return k.ask()
}

// ask queues a reading on the GPU.
func (k *gpuClock) ask() error {
	d := k.c.drv
	if err := d.EventRecord(k.before, k.stream); err != nil {
		return err
	}
	if err := d.LaunchKernel(k.kernel, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, k.stream, k.args, 8); err != nil {
		return err
	}
	k.next.host = k.host.Now()
	if err := d.EventRecord(k.next.event, k.stream); err != nil {
		return err
	}
	k.asked = true
	return nil
}

// read is the kernel's last reading, and how much of the time between the events about
// it lies beside the kernel.
func (k *gpuClock) read() (last, beside time.Duration, err error) {
	gap, err := k.elapsed(k.before, k.next.event)
	if err != nil {
		return 0, 0, err
	}
	k.next.gpu = time.Duration(k.stamp[0].Load())
	last = time.Duration(k.stamp[1].Load())
	return last, max(gap-(last-k.next.gpu), 0), nil
}

// adopt makes the queued reading the reference if it is done.
func (k *gpuClock) adopt() error {
	done, err := k.c.drv.EventQuery(k.next.event)
	if err != nil || !done {
		return err
	}
	read, beside, err := k.read()
	if err != nil {
		return err
	}
	k.next.at = read + min(stampAfter, beside)
	if k.next.host-k.ref.host < chainFor {
		// Told from the last one it is exact to the float; the reading keeps many such
		// steps from adding up.
		since, err := k.elapsed(k.ref.event, k.next.event)
		if err != nil {
			return err
		}
		k.next.at = min(max(k.ref.at+since, read), read+beside)
	}
	k.asked = false
	k.ref, k.next = k.next, k.ref
	now := k.host.Now()
	k.due.Store(int64(now + referenceEvery))
	k.steer(k.ref.pair)
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

// estimate returns the GPU's time at an instant of the host's clock.
func (k *gpuClock) estimate(host time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := host - k.anchor.host
	return k.anchor.gpu + d + time.Duration(float64(d)*k.rate)
}

// at returns when an event was reached.
// Preconditions: the context is current.
func (k *gpuClock) at(e cuda.Event) (time.Duration, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asked {
		if err := k.adopt(); err != nil {
			return 0, err
		}
	}
	d, err := k.elapsed(k.ref.event, e)
	return k.ref.at + d, err
}

// elapsed returns the time between two events that were reached.
func (k *gpuClock) elapsed(from, to cuda.Event) (time.Duration, error) {
	ms, err := k.c.drv.EventElapsedTime(from, to)
	return time.Duration(float64(ms) * 1e6), err
}
