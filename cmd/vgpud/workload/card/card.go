// Package card stands in for a network card that launches event kernels (EDGE, figure 8c). [Register]
// is the guest's part: it registers the corpus's UDP ping, and prepares the queue's entries once. A
// [Card] is the card's: it has the event area and nothing else, puts 32 packets into the area for each
// event, launches it by a store, and checks every answer.
//
// The package runs in guests and beside them: it imports nothing of the host's.
package card

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/internal/futex"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// AreaVariable is the environment variable with the number of the event area's descriptor, which
// `vgpuctl card` and `vgpu-agent card` set.
const AreaVariable = "VGPU_EVENT_AREA"

const (
	// Packets is how many packets an event has: one warp's.
	Packets = 32
	// Entries is how many events are under way at most.
	Entries = 8

	slotBytes  = 64 // a packet's
	eventBytes = Packets*slotBytes + 4*Packets
)

// Register registers the kernel that answers packets in a context, and prepares its queue: each entry
// has packets of its own, in the event area.
func Register(ctx context.Context, c *driver.Context) (*driver.EventKernel, error) {
	ping, ok := corpus.ByName("ping")
	if !ok {
		return nil, errors.New("the corpus has no ping")
	}
	m, err := c.LoadModule(ctx, []byte(ping.PTX(corpus.SM80)))
	if err != nil {
		return nil, err
	}
	f, err := m.Function(ctx, "udp_ping")
	if err != nil {
		return nil, err
	}
	params := func(packets driver.Ptr) ([]byte, error) {
		return f.AppendParams(nil, packets, packets+Packets*slotBytes, uint32(Packets))
	}
	first, err := params(0)
	if err != nil {
		return nil, err
	}
	k, err := c.RegisterEventKernel(ctx, &driver.Launch{Function: f, Block: driver.Dim{X: Packets}, Params: first}, Entries)
	if err != nil {
		return nil, err
	}
	_, at := k.Queue().Spare()
	for i := range Entries {
		p, err := params(k.Area() + driver.Ptr(at+i*eventBytes))
		if err != nil {
			return nil, err
		}
		copy(k.Queue().Params(i), p)
	}
	return k, nil
}

// Inherited maps the event area that this process was given.
func Inherited() ([]byte, error) {
	fd, err := strconv.Atoi(os.Getenv(AreaVariable))
	if err != nil {
		return nil, fmt.Errorf("%s is %q: start this program by `vgpuctl card` or `vgpu-agent card`", AreaVariable, os.Getenv(AreaVariable))
	}
	f := os.NewFile(uintptr(fd), "event area")
	// On the host it is a file in memory, in a guest a resource of a PCI device.
	if info, err := f.Stat(); err != nil || info.Size() != abi.EventAreaBytes {
		return nil, errors.Join(fmt.Errorf("descriptor %d is no event area of %d bytes", fd, abi.EventAreaBytes), err, f.Close())
	}
	area, err := unix.Mmap(fd, 0, abi.EventAreaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map the event area: %w", err), f.Close())
	}
	return area, f.Close()
}

// KickHost kicks as a process of the host's does.
func KickHost(area []byte) {
	w := abi.AtomicWord(area, abi.EventKicksWord)
	w.Add(1)
	futex.Wake(w)
}

// Card launches one event kernel's events.
type Card struct {
	kick  func()
	queue *eventqueue.Launcher
	room  []byte
	sent  uint32 // events
	first [Entries]uint32
	began [Entries]time.Time
	// Latencies are the times from each ring until its answer was found, if Keep is set.
	Keep      bool
	Latencies []time.Duration
	answered  uint64
}

// New returns the card of event kernel n, which [Register] registered. It goes on where another one
// has died. kick wakes whoever is to poll.
func New(area []byte, n int, kick func()) (*Card, error) {
	q, err := eventqueue.Attach(area, n)
	if err != nil {
		return nil, err
	}
	room, _ := q.Spare() // where kernels find it is [Register]'s business
	if q.Entries() != Entries || len(room) < Entries*eventBytes {
		return nil, fmt.Errorf("event kernel %d has %d entries and %d bytes of room: it is not the card's", n, q.Entries(), len(room))
	}
	c := &Card{kick: kick, queue: q, room: room}
	for e, ok := q.Done(); q.Flying() > 0; e, ok = q.Done() { // what the one before launched
		if _ = e; ok {
			q.Complete()
		} else if q.State() != abi.EventRegistered {
			return nil, c.over()
		}
		runtime.Gosched()
	}
	return c, nil
}

// Answered returns how many packets were answered, and checked.
func (c *Card) Answered() uint64 { return c.answered }

// over is the error of an event kernel that is no longer registered.
func (c *Card) over() error {
	return fmt.Errorf("the event kernel is %v: %w", c.queue.State(), eventqueue.ErrNotRegistered)
}

// Step launches an event if there is a free entry and more is set, and checks answers that are there.
// It reports whether it did anything.
func (c *Card) Step(more bool) (did bool, err error) {
	if e, ok := c.queue.Done(); ok {
		if err := c.check(e); err != nil {
			return true, err
		}
		if c.Keep {
			c.Latencies = append(c.Latencies, time.Since(c.began[e]))
		}
		c.queue.Complete()
		c.answered += Packets
		did = true
	}
	if e, ok := c.queue.Free(); ok && more {
		c.fill(e)
		c.began[e] = time.Now()
		if c.queue.Launch() {
			c.kick()
		}
		return true, nil
	}
	if !did && c.queue.State() != abi.EventRegistered {
		return false, c.over()
	}
	return did, nil
}

// Flying returns how many events are under way.
func (c *Card) Flying() int { return c.queue.Flying() }

// Run launches events, and returns when all are answered, at the first wrong answer, or when ctx ends.
func (c *Card) Run(ctx context.Context, events int) error {
	for n := 0; n < events || c.Flying() > 0; {
		before := c.sent
		did, err := c.Step(n < events)
		if err != nil {
			return err
		}
		n += int(c.sent - before)
		if !did {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			runtime.Gosched()
		}
	}
	return nil
}

// fill writes an entry's packets. Every third one is TCP, which is not answered.
func (c *Card) fill(entry int) {
	c.first[entry] = c.sent * Packets
	c.sent++
	packets := c.room[entry*eventBytes:][:eventBytes]
	clear(packets[Packets*slotBytes:])
	for i := range uint32(Packets) {
		putPacket(packets[i*slotBytes:][:slotBytes], c.first[entry]+i, false)
	}
}

// check compares an entry's packets with what they should be.
func (c *Card) check(entry int) error {
	packets := c.room[entry*eventBytes:][:eventBytes]
	var want [slotBytes]byte
	for i := range uint32(Packets) {
		seq := c.first[entry] + i
		putPacket(want[:], seq, true)
		if got := packets[i*slotBytes:][:slotBytes]; !bytes.Equal(got, want[:]) {
			return fmt.Errorf("packet %d is answered by % x, want % x", seq, got, want)
		}
		if got := binary.LittleEndian.Uint32(packets[Packets*slotBytes+4*i:]); got != isUDP(seq) {
			return fmt.Errorf("packet %d: answered %d, want %d", seq, got, isUDP(seq))
		}
	}
	return nil
}

func isUDP(seq uint32) uint32 {
	if seq%3 == 2 {
		return 0
	}
	return 1
}

// putPacket writes a packet of IPv4, or the answer to it, into a slot: two bytes, the headers of
// Ethernet, IPv4 and UDP, and data.
func putPacket(b []byte, seq uint32, answer bool) {
	clear(b)
	from, to := uint32(0x0a00_0001)+seq, uint32(0xc0a8_0000)+seq*7
	ports := [2]uint16{uint16(seq), 7}
	protocol := byte(17)
	if isUDP(seq) == 0 {
		protocol = 6
	} else if answer {
		from, to = to, from
		ports[0], ports[1] = ports[1], ports[0]
	}
	binary.BigEndian.PutUint32(b[2:], to) // the addresses of Ethernet, from those of IPv4
	binary.BigEndian.PutUint32(b[8:], from)
	binary.BigEndian.PutUint16(b[14:], 0x0800)
	b[16], b[24], b[25] = 0x45, 64, protocol
	binary.BigEndian.PutUint32(b[28:], from)
	binary.BigEndian.PutUint32(b[32:], to)
	binary.BigEndian.PutUint16(b[36:], ports[0])
	binary.BigEndian.PutUint16(b[38:], ports[1])
	binary.BigEndian.PutUint32(b[44:], seq)
}
