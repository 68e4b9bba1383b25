package rmtest

import (
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/rm/abi"
)

// client is a client with its objects.
type client struct {
	handle  abi.Handle
	objects map[abi.Handle]*object
	free    abi.Handle // next handle of the driver's choice
}

// object is any of a client's objects. Its class determines the fields in use.
type object struct {
	parent    abi.Handle
	class     abi.Class
	disables  int // of a channel
	timeslice uint64
	id        uint16  // of a group
	memory    *memory // of memory
	mapped    int     // of memory: number of mappings
	buffer    *buffer // of an event buffer
}

// memory is memory that the driver shows.
type memory struct {
	mu sync.Mutex
	b  []byte
}

func (m *memory) Load32(off int) uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return binary.LittleEndian.Uint32(m.b[off:])
}

func (m *memory) Copy(b []byte, off int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	copy(b, m.b[off:off+len(b)])
}

func (m *memory) Store32(off int, v uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	binary.LittleEndian.PutUint32(m.b[off:], v)
}

func (m *memory) Close() error { return nil }

// buffer is an event buffer.
type buffer struct {
	header, records *memory
	n               uint32
	bound, enabled  bool
	get, put        uint32
	dropped         uint64
	pending         []abi.NV_EVENT_BUFFER_FECS_RECORD_V2 // not written out by the GPU yet
	sequence        uint16
}

// flush writes out pending records. A full buffer keeps the oldest.
func (b *buffer) flush() {
	for _, r := range b.pending {
		r.Sequence = b.sequence
		b.sequence++
		if (b.put+1)%b.n == b.get {
			b.dropped++
			continue
		}
		var raw [abi.EventRecordBytes]byte
		r.Encode(&raw)
		b.records.mu.Lock()
		copy(b.records.b[b.put*abi.EventRecordBytes:], raw[:])
		b.records.mu.Unlock()
		b.put = (b.put + 1) % b.n
	}
	b.pending = b.pending[:0]
	b.header.mu.Lock()
	abi.NV_EVENT_BUFFER_HEADER{Get: b.get, Put: b.put, Dropped: b.dropped}.Encode(b.header.b)
	b.header.mu.Unlock()
}

// Switch makes the GPU record a context switch.
func (d *Driver) Switch(at time.Duration, pid uint32, on bool) {
	tag := abi.NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_END
	if on {
		tag = abi.NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START
	}
	d.Record(abi.NV_EVENT_BUFFER_FECS_RECORD_V2{Type: abi.EventTypeFECS, Tag: tag, PID: pid, Clock: uint64(at)})
}

// Record makes the GPU record r.
func (d *Driver) Record(r abi.NV_EVENT_BUFFER_FECS_RECORD_V2) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		for _, c := range f.clients {
			for _, o := range c.objects {
				if o.buffer != nil && o.buffer.bound && o.buffer.enabled {
					o.buffer.pending = append(o.buffer.pending, r)
				}
			}
		}
	}
}

// Context is a CUDA context with the objects that libcuda makes.
type Context struct {
	d      *Driver
	client *client
	node   *node
	// The handles of its objects.
	Client, Subdevice, Group abi.Handle
	Channels, Copies         []abi.Handle
}

// NewContext makes a context with so many channels for compute, and three groups of half as many
// for copies. own makes it belong to this process.
func (d *Driver) NewContext(channels int, own bool) (*Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := d.open(true)
	if err != nil {
		return nil, err
	}
	n, err := d.node(f)
	if err != nil {
		return nil, err
	}
	if own {
		// libcuda has other descriptors too, those of its mappings.
		window, err := d.open(true)
		if err != nil {
			return nil, err
		}
		if _, err := d.node(window); err != nil {
			return nil, err
		}
		d.own = append(d.own, window, f)
	}
	x := &Context{d: d, client: d.newClient(n.file), node: n}
	x.Client = x.client.handle
	h := abi.Handle(0x5c000000)
	put := func(parent abi.Handle, class abi.Class) abi.Handle {
		h += 1 + h%3 // numbers have gaps, as with libcuda
		x.client.objects[h] = &object{parent: parent, class: class}
		return h
	}
	device := put(x.Client, abi.NV01_DEVICE_0)
	x.Subdevice = put(device, abi.NV20_SUBDEVICE_0)
	group := func() abi.Handle {
		g := put(device, abi.KEPLER_CHANNEL_GROUP_A)
		d.groups++
		x.client.objects[g].id, x.client.objects[g].timeslice = d.groups, 2048
		return g
	}
	x.Group = group()
	for range channels {
		ch := put(x.Group, abi.HOPPER_CHANNEL_GPFIFO_A)
		put(ch, abi.HOPPER_COMPUTE_A)
		x.Channels = append(x.Channels, ch)
	}
	for range 3 {
		g := group()
		for range channels / 2 {
			ch := put(g, abi.HOPPER_CHANNEL_GPFIFO_A)
			put(ch, abi.HOPPER_DMA_COPY_A)
			x.Copies = append(x.Copies, ch)
		}
	}
	return x, nil
}

// AddMemory adds memory on the GPU to the context, as an allocation does.
func (x *Context) AddMemory(b []byte) {
	x.d.mu.Lock()
	defer x.d.mu.Unlock()
	var newest, device abi.Handle
	for h, o := range x.client.objects {
		switch o.class {
		case abi.NV01_ROOT_CLIENT:
			continue // another numbering
		case abi.NV01_DEVICE_0:
			device = h
		}
		newest = max(newest, h)
	}
	x.client.objects[newest+2] = &object{parent: device, class: abi.NV01_MEMORY_LOCAL_USER, memory: &memory{b: b}}
}

// Mapped returns the number of mappings of the context's memory on the GPU.
func (x *Context) Mapped() (n int) {
	x.d.mu.Lock()
	defer x.d.mu.Unlock()
	for _, o := range x.client.objects {
		n += o.mapped
	}
	return n
}

// Disabled returns the least and the greatest disable count of the context's channels.
func (x *Context) Disabled() (least, most int) {
	x.d.mu.Lock()
	defer x.d.mu.Unlock()
	least = 1 << 30
	for _, o := range x.client.objects {
		if o.class.Channel() {
			least, most = min(least, o.disables), max(most, o.disables)
		}
	}
	return least, most
}

// FD returns a new descriptor of the context's file. The caller owns it.
func (x *Context) FD() (int, error) {
	return unix.FcntlInt(x.node.f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}
