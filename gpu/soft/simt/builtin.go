package simt

import (
	"fmt"
	"strings"

	"vgpud/gpu"
	"vgpud/ptx"
)

// builtins are the functions of CUDA's device runtime by name, with the numbers of their arguments
// and results.
var builtins = map[string]struct {
	args, returns int
	run           func(w *warp, in *inst)
}{
	"vprintf":      {2, 1, vprintf},
	"malloc":       {1, 1, deviceMalloc},
	"free":         {1, 0, deviceFree},
	"__assertfail": {5, 0, assertFail},
}

// builtin compiles a call of a function of the device runtime.
func (c *compiler) builtin(call ptx.Call) error {
	b, ok := builtins[call.Target.Name]
	if !ok {
		return c.unsupported("function %s is defined nowhere", call.Target.Name)
	}
	if len(call.Args) != b.args || len(call.Returns) > b.returns {
		return c.invalid("%d arguments and %d results", len(call.Args), len(call.Returns))
	}
	site := &callSite{}
	for i := range call.Args {
		v, err := c.pass(&call.Args[i], nil, i)
		if err != nil {
			return err
		}
		site.args = append(site.args, v)
	}
	for i := range call.Returns {
		v, err := c.pass(&call.Returns[i], nil, i)
		if err != nil {
			return err
		}
		site.returns = append(site.returns, v)
	}
	c.emit(inst{op: b.run, run: 1, x: &extra{call: site}}, c.costs().Print)
	return nil
}

// argument reads argument i of a lane.
func (w *warp) argument(site *callSite, i, lane int) uint64 {
	a := &site.args[i]
	if a.reg.class != noReg {
		return w.lane(a.reg, lane)
	}
	return fetch(w.local[lane*w.localBytes+int(w.sp+a.at):], int(min(a.size, 8)), false)
}

// result sets a lane's result, if the caller uses it.
func (w *warp) result(site *callSite, lane int, v uint64) {
	if len(site.returns) == 0 || site.returns[0].none {
		return
	}
	r := &site.returns[0]
	if r.reg.class != noReg {
		w.setLane(r.reg, lane, v)
	} else {
		put(w.local[lane*w.localBytes+int(w.sp+r.at):], int(min(r.size, 8)), v)
	}
}

// vprintf writes the text of each lane, in order.
func vprintf(w *warp, in *inst) {
	for m := w.mask; m != 0; m &= m - 1 {
		lane := first(m)
		args := &printArgs{w: w, lane: lane, at: w.argument(in.x.call, 1, lane)}
		format := w.cstring(lane, w.argument(in.x.call, 0, lane), maxFormat)
		b := w.block
		b.text = printf(b.text[:0], format, args)
		if out := w.grid.launch.Print; out != nil {
			out.Write(b.text) // text that does not fit is lost, as with CUDA's ring
		}
		w.counts.Cycles += uint64(w.grid.costs.Print)
		w.result(in.x.call, lane, uint64(args.count))
	}
}

// printArgs is the buffer of vprintf's arguments, each aligned to its size.
type printArgs struct {
	w     *warp
	lane  int
	at    uint64
	count int
}

func (p *printArgs) next(size int) uint64 {
	p.count++
	p.at = alignUp(p.at, uint64(size))
	data, off, ok := p.w.locate(&access{size: uint32(size)}, p.lane, p.at, true)
	p.at += uint64(size)
	if !ok || off+size > len(data) {
		return 0
	}
	return fetch(data[off:], size, false)
}

func (p *printArgs) text(addr uint64) []byte { return p.w.cstring(p.lane, addr, maxString) }

// cstring reads a string at a generic address, up to its NUL, the end of the mapping, or limit
// bytes.
func (w *warp) cstring(lane int, addr uint64, limit int) []byte {
	data, off, ok := w.locate(&access{size: 1}, lane, addr, true)
	if !ok {
		return nil
	}
	end := min(len(data), off+limit)
	if addr >= localWindow && addr < paramWindow {
		end = min(end, (lane+1)*w.localBytes)
	}
	for i := off; i < end; i++ {
		if data[i] == 0 {
			return data[off:i]
		}
	}
	return data[off:end]
}

// maxAssert limits the message of a failed assertion in bytes.
const maxAssert = 2048

// assertFail executes __assertfail: it ends the kernel with CUDA's message.
func assertFail(w *warp, in *inst) {
	lane := first(w.mask)
	site := in.x.call
	str := func(i int) []byte { return w.cstring(lane, w.argument(site, i, lane), maxString) }
	w.raise(gpu.FaultAssert, in, lane)
	f := w.fault
	text := fmt.Sprintf("%s:%d: %s: block: [%d,%d,%d], thread: [%d,%d,%d] Assertion `%s` failed.", str(1), uint32(w.argument(site, 2, lane)), str(3),
		f.Block.X, f.Block.Y, f.Block.Z, f.Thread.X, f.Thread.Y, f.Thread.Z, str(0))
	f.Text = strings.ToValidUTF8(text[:min(len(text), maxAssert)], "?")
}

// deviceMalloc allocates from the context's heap. A lane gets zero if the heap is exhausted.
func deviceMalloc(w *warp, in *inst) {
	for m := w.mask; m != 0; m &= m - 1 {
		lane := first(m)
		w.result(in.x.call, lane, w.grid.launch.Memory.heapAlloc(w.argument(in.x.call, 0, lane)))
	}
}

// deviceFree frees what deviceMalloc returned.
func deviceFree(w *warp, in *inst) {
	for m := w.mask; m != 0; m &= m - 1 {
		w.grid.launch.Memory.heapFree(w.argument(in.x.call, 0, first(m)))
	}
}
