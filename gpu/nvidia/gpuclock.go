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

// The driver gives the times of events as differences in milliseconds, as a float32. So they are
// measured from a recent reference event whose time on the GPU's clock is known.
const (
	// referenceEvery is the greatest age of a reference: up to it a float32 resolves 61 ns.
	referenceEvery = time.Second
	// chainFor is the greatest age of the last reference from which the next one's time is
	// measured. With an older one the kernel's reading is used alone.
	chainFor = 4 * time.Second
	// tightReading is the greatest excess, over the duration of the kernel that reads the clock, of
	// the time between the events around it for a context's first reference to be accepted at once.
	// Most of the excess passes before the kernel, during its launch call.
	tightReading = 8 * time.Microsecond
	firstTries   = 8
	// stampAfter is the approximate time from a kernel's last reading of the clock to the event
	// after it, if that event was queued by then.
	stampAfter = time.Microsecond
)

// stampPTX stores the GPU's clock at its beginning and again at its end 16 µs later, by when the
// event after it has been queued.
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

// gpuClock returns the times of events on the GPU's clock: PTIMER, which kernels read as
// %globaltimer and which the record of context switches uses too. The reference is renewed every
// second of use, on the zeroing stream, by a kernel of one thread that stores the clock and by the
// event after it.
type gpuClock struct {
	c      *Context
	host   clock.Clock
	stream cuda.Stream
	module cuda.Module
	kernel cuda.Function
	args   *cuda.Args
	mem    []byte
	stamp  [2]*atomic.Uint64 // the kernel's beginning and end

	due atomic.Int64 // time of the next renewal, on the host's clock

	mu     sync.Mutex
	ref    reference
	next   reference  // the reference under way
	before cuda.Event // before the kernel that reads the clock
	asked  bool       // next is on the GPU
	anchor pair
	rate   float64 // GPU nanoseconds per host nanosecond, minus 1
}

// reference is an event whose time on the GPU's clock is known. pair belongs to the beginning of
// the kernel before the event: the kernel may have begun slightly before pair.host, or much later.
type reference struct {
	event cuda.Event
	at    time.Duration // on the GPU's clock
	pair
}

// newGPUClock makes the clock of the current context and waits for its first reference.
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
	// The hardware has channels for few streams, and streams that share one wait for one another.
	// Zeroing can wait.
	k.stream = k.c.zero.stream
	for _, e := range []*cuda.Event{&k.ref.event, &k.next.event, &k.before} {
		if *e, err = d.EventCreate(0); err != nil {
			return err
		}
	}
	// The first kernel of a context starts late. The quickest of several counts.
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

// tick starts a new reference if the old one is due, and costs almost nothing otherwise. The
// context is current.
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

// read returns the kernel's last reading, and the part of the time between the events around it
// that lies outside the kernel.
func (k *gpuClock) read() (last, beside time.Duration, err error) {
	gap, err := k.elapsed(k.before, k.next.event)
	if err != nil {
		return 0, 0, err
	}
	k.next.gpu = time.Duration(k.stamp[0].Load())
	last = time.Duration(k.stamp[1].Load())
	return last, max(gap-(last-k.next.gpu), 0), nil
}

// adopt makes the reading on the GPU the reference if it is done.
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
		// Measured from the last reference it is exact to the float's resolution; the reading keeps
		// such steps from adding up.
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

// steer updates the rate of the GPU's clock. The kernel may have run late, so the GPU's time is
// never ahead of p: only a prompt reading moves the anchor.
func (k *gpuClock) steer(p pair) {
	const least = 500 * time.Millisecond
	if d := p.host - k.anchor.host; d >= least {
		late := p.gpu - k.anchor.gpu - d
		if late < d/1000 { // otherwise the kernel waited
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

// at returns the time at which an event was reached. The context is current.
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
