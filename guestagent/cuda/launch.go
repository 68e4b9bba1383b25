package cuda

import (
	"errors"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

// launchBuffer is memory that a thread's launches use one after the other.
type launchBuffer struct {
	params []byte
	l      driver.Launch
	attrs  [4]abi.Attribute
}

// configuration is the shape of a launch.
type configuration struct {
	grid, block [3]uint32
	shared      uint32
	cooperative bool
	priority    int32
}

// Bounds of a grid.
const (
	mostGridX = 1<<31 - 1
	mostGrid  = 1<<16 - 1
)

// check returns the result for a launch of a function in this shape.
func (f *function) check(l *configuration) Result {
	g, b := l.grid, l.block
	if g[0] == 0 || g[1] == 0 || g[2] == 0 || b[0] == 0 || b[1] == 0 || b[2] == 0 ||
		g[0] > mostGridX || g[1] > mostGrid || g[2] > mostGrid || b[0] > 1024 || b[1] > 1024 || b[2] > 64 {
		return ErrorInvalidValue
	}
	threads := b[0] * b[1] * b[2]
	if threads > 1024 || l.shared > f.maxDynamic.Load() {
		return ErrorInvalidValue
	}
	if f.maxThreads != 0 && threads > f.maxThreads {
		return ErrorLaunchOutOfResources
	}
	return Success
}

// Words of the extra parameter.
const (
	extraEnd     = 0
	extraPointer = 1
	extraSize    = 2
)

// gather puts a launch's parameters, of which params has the addresses or extra the packed bytes,
// into the thread's buffer.
func (c *Call) gather(f *function, params, extra *Pointer) Result {
	b := c.launch.params[:0]
	switch {
	case params != nil && extra != nil:
		return ErrorInvalidValue
	case extra != nil:
		var data Pointer
		var size *uint64
		for words, i := words64(extra, 5), 0; ; i += 2 {
			if i == 4 || words[i] == extraEnd {
				break
			}
			switch words[i] {
			case extraPointer:
				data = pointerTo(words[i+1])
			case extraSize:
				size = value[uint64](pointerTo(words[i+1]))
			default:
				return ErrorInvalidValue
			}
		}
		if data == nil || size == nil || *size > uint64(f.bytes) {
			return ErrorInvalidValue
		}
		b = append(b, hostBytes(data, *size)...)
	case params != nil:
		all := array(params, uint64(len(f.params)))
		for i, p := range f.params {
			if all[i] == nil {
				return ErrorInvalidValue
			}
			for len(b) < p.Offset {
				b = append(b, 0)
			}
			b = append(b, hostBytes(all[i], uint64(p.Size))...)
		}
	case len(f.params) > 0:
		return ErrorInvalidValue
	}
	for len(b) < f.bytes {
		b = append(b, 0)
	}
	c.launch.params = b
	return Success
}

// start launches a function with the parameters in the thread's buffer.
func (c *Call) start(s *stream, f *function, l *configuration) Result {
	x := s.x
	if x != f.m.x {
		return ErrorInvalidHandle
	}
	if r := f.check(l); r != Success {
		return r
	}
	if c.captures(s) {
		if r, done := c.capture(s, func() operation { return newKernelNode(f, *l, c.launch.params) }); done {
			return r
		}
	}
	return c.enqueue(s, f, l)
}

func (c *Call) enqueue(s *stream, f *function, l *configuration) Result {
	x := s.x
	if c.d.host.shared.Load() > 0 && !x.reaches.Load() {
		x.reachHost()
	}
	if f.m.unbound.Load() {
		if r := c.bind(s, f.m); r != Success {
			return r
		}
	}
	x.mu.Lock()
	if p, waits := x.blocker(s); waits {
		x.mu.Unlock()
		kept := *l
		return c.ordered(s, p, func() Result { return c.enqueue(s, f, &kept) })
	}
	slot := s.ch.slot()
	if slot.p == nil || slot.shared {
		slot.p, slot.shared = new(driver.Pending), false
	}
	d := &c.launch.l
	*d = driver.Launch{
		Function: f.f, Grid: driver.Dim{X: l.grid[0], Y: l.grid[1], Z: l.grid[2]}, Block: driver.Dim{X: l.block[0], Y: l.block[1], Z: l.block[2]},
		SharedBytes: l.shared, Params: c.launch.params, Priority: l.priority,
	}
	if d.Priority == 0 {
		d.Priority = s.priority
	}
	if l.cooperative {
		c.launch.attrs[0] = abi.Attribute{ID: abi.AttributeCooperative}
		c.launch.attrs[0].PutUint32(0, 1)
		d.Attributes = c.launch.attrs[:1]
	}
	if err := s.ch.ch.Enqueue(c.slice(), slot.p, d); err != nil {
		x.mu.Unlock()
		if errors.Is(err, errSlice) {
			kept := *l
			return c.later(func() Result { return c.enqueue(s, f, &kept) })
		}
		return x.fail(err)
	}
	s.ch.add(s, slot.p, false)
	if x.task != nil {
		x.task.noteLaunch(l)
	}
	x.mu.Unlock()
	return Success
}

// ordered calls f when a stream's next command may follow p.
func (c *Call) ordered(s *stream, p point, f func() Result) Result {
	s.x.mu.Lock()
	done, r := c.order(s, p)
	s.x.mu.Unlock()
	switch {
	case r != Success:
		return r
	case done:
		return f()
	}
	return c.waitFor([]point{p}, f)
}

// LaunchKernel is cuLaunchKernel.
func (c *Call) LaunchKernel(h Handle, gx, gy, gz, bx, by, bz, shared uint32, sh Handle, params, extra *Pointer) Result {
	return c.launchAs(h, configuration{grid: [3]uint32{gx, gy, gz}, block: [3]uint32{bx, by, bz}, shared: shared}, sh, params, extra)
}

// LaunchCooperativeKernel is cuLaunchCooperativeKernel.
func (c *Call) LaunchCooperativeKernel(h Handle, gx, gy, gz, bx, by, bz, shared uint32, sh Handle, params *Pointer) Result {
	return c.launchAs(h, configuration{grid: [3]uint32{gx, gy, gz}, block: [3]uint32{bx, by, bz}, shared: shared, cooperative: true}, sh, params, nil)
}

func (c *Call) launchAs(h Handle, l configuration, sh Handle, params, extra *Pointer) Result {
	s, r := c.stream(sh)
	if r != Success {
		return r
	}
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if l.cooperative {
		if r := c.fits(f, &l); r != Success {
			return r
		}
	}
	if r := c.gather(f, params, extra); r != Success {
		return r
	}
	return c.start(s, f, &l)
}

// fits checks that all blocks of a cooperative launch are on the GPU at once.
func (c *Call) fits(f *function, l *configuration) Result {
	if r := f.check(l); r != Success {
		return r
	}
	blocks, r := f.occupancy(l.block[0]*l.block[1]*l.block[2], uint64(l.shared))
	if r != Success {
		return r
	}
	sms, r := c.d.attribute(DeviceAttributeMultiprocessorCount)
	if r != Success {
		return r
	}
	if uint64(l.grid[0])*uint64(l.grid[1])*uint64(l.grid[2]) > uint64(blocks)*uint64(sms) {
		return ErrorCooperativeLaunchTooLarge
	}
	return Success
}
