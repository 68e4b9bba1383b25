package drivertest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// Kernel is a kernel in the modules of a [GPU].
type Kernel struct {
	// Params are the sizes of the parameters; each is aligned to its size.
	Params []int
	// Run executes the kernel; nil does nothing. An [abi.Status] in its error's chain is the
	// launch's status.
	Run func(g *GPU, l abi.Launch, params []byte) error
	// Duration returns how long a launch takes on the GPU's clock; nil means as long as Run does.
	// Evicted returns how often the launch counts as evicted.
	Duration func(Call) time.Duration
	Evicted  func(Call) uint64
	// FormsPerSM is how many blocks of its forms an SM holds; 0 means PerSM.
	FormsPerSM uint64
	// TooLarge are the forms of which an SM holds no block, so that they can't be launched.
	TooLarge abi.PreemptForm
}

// Increment is a kernel that adds 1 to each of n bytes; its parameters are their address and n.
var Increment = Kernel{Params: []int{8, 4}, Run: func(g *GPU, _ abi.Launch, p []byte) error {
	b := g.Bytes(binary.LittleEndian.Uint64(p), uint64(binary.LittleEndian.Uint32(p[8:])))
	if b == nil {
		return abi.StatusIllegalAddress
	}
	for i := range b {
		b[i]++
	}
	return nil
}}

// Call is an executed launch.
type Call struct {
	Kernel   string
	Preempt  abi.Preempt // zero for the original
	Priority int32       // 0 if none was given
	Grid     [3]uint32
}

// maxCalls is how many calls are kept: the latest.
const maxCalls = 4096

// GPU is a context's memory and modules. It may be used from several goroutines.
type GPU struct {
	mu               sync.Mutex
	kernels          map[string]Kernel
	memory           map[uint64][]byte
	next             uint64
	handles          map[uint64]string // of functions
	events           map[uint64]uint64 // times
	handle           uint64
	poison           abi.Status
	fault            string
	images           map[uint64]string // of modules
	calls            []Call
	occupancyQueries int    // for occupancies
	occupancy        func() // Options.Occupancy
	windowAddress    func() error
	scratch          []byte // a command's data
	refuseForms      bool   // forms of kernels are refused
	moduleLog        string // of modules that are loaded
	windows          int    // where in BAR2 windows begin
	version1_1       bool   // it knows nothing of version 1.2
	peak             uint64 // most bytes allocated at a time
}

// NewGPU returns a GPU whose modules all contain the same kernels.
func NewGPU(kernels map[string]Kernel) *GPU {
	return &GPU{kernels: kernels, memory: map[uint64][]byte{}, next: 1 << 46, handles: map[uint64]string{}, events: map[uint64]uint64{}, images: map[uint64]string{}}
}

// Name is the name of every GPU.
const Name = "test GPU"

// Bytes returns n bytes of GPU memory at an address, or nil.
func (g *GPU) Bytes(addr, n uint64) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bytes(addr, n)
}

func (g *GPU) bytes(addr, n uint64) []byte {
	for base, b := range g.memory {
		if addr >= base && addr-base <= uint64(len(b)) && n <= uint64(len(b))-(addr-base) {
			return b[addr-base:][:n]
		}
	}
	return nil
}

// Allocations returns how many allocations there are.
func (g *GPU) Allocations() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.memory)
}

// Calls returns the executed launches and forgets them.
func (g *GPU) Calls() []Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := g.calls
	g.calls = nil
	return calls
}

// Image returns the text of the module that was loaded last.
func (g *GPU) Image() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var last uint64
	for h := range g.images {
		last = max(last, h)
	}
	return g.images[last]
}

// formSuffix separates a kernel's name from the name of a form in an entry's name.
const formSuffix = "__vgpud_"

// kernel finds a kernel by its name or that of a form, which has one parameter more.
func (g *GPU) kernel(name string) (Kernel, bool) {
	base, _, form := strings.Cut(name, formSuffix)
	k, ok := g.kernels[base]
	if form {
		k.Params = slices.Concat(k.Params, []int{abi.PreemptArgsBytes})
	}
	return k, ok
}

func now() uint64 { return uint64(time.Since(epoch)) }

var epoch = time.Now()

// execute executes one command with the entries cmd.
func (g *GPU) execute(shared []byte, cmd []abi.Entry, c *abi.Completion) {
	h, err := abi.DecodeHeader(&cmd[0])
	c.Op, c.Cookie, c.Status = h.Op, h.Cookie, abi.StatusOK
	c.Start, c.End, c.Value = 0, 0, [3]uint64{}
	if err == nil && h.Op == abi.OpNop {
		return
	}
	if err == nil && g.version1_1 && h.Op.Command().Feature&^Features1_1 != 0 {
		err = abi.StatusMalformed
	}
	g.mu.Lock()
	if err == nil && g.poison != abi.StatusOK && h.Op != abi.OpLastFault {
		err = g.poison
	}
	g.mu.Unlock()
	if h.Op == abi.OpOccupancy && g.occupancy != nil {
		g.occupancy()
	}
	if err == nil {
		err = g.carryOut(shared, h, cmd, c)
	}
	if err != nil {
		c.Status = statusOf(err)
		if c.Status.Poisons() {
			g.mu.Lock()
			if g.poison == abi.StatusOK {
				g.poison, g.fault = c.Status, err.Error()
			}
			g.mu.Unlock()
		}
	}
}

// data returns the data of a command: its continuation entries, or bytes of BAR2. It is valid until
// the next call.
func (g *GPU) data(shared []byte, cmd []abi.Entry, offset, n uint64) ([]byte, error) {
	if len(cmd) > 1 {
		g.scratch = g.scratch[:0]
		for i := range cmd[1:] {
			g.scratch = append(g.scratch, cmd[1+i][:]...)
		}
		if uint64(len(g.scratch)) < n {
			return nil, abi.StatusMalformed
		}
		return g.scratch[:n], nil
	}
	if n == 0 {
		return nil, nil
	}
	return abi.Window{Offset: offset, Size: n}.Bytes(shared, g.windows)
}

func (g *GPU) carryOut(shared []byte, h abi.Header, cmd []abi.Entry, c *abi.Completion) error {
	e := &cmd[0]
	g.mu.Lock()
	defer g.mu.Unlock()
	switch h.Op {
	case abi.OpFence:
		return nil
	case abi.OpMemAlloc, abi.OpMemFree, abi.OpMemInfo, abi.OpCopyIn, abi.OpCopyOut, abi.OpCopy, abi.OpSet:
		return g.doMemory(shared, h.Op, e, c)
	case abi.OpModuleLoad, abi.OpModuleUnload, abi.OpFunction, abi.OpFunctionParam, abi.OpGlobal:
		return g.doModule(shared, h.Op, cmd, c)
	case abi.OpLaunch:
		return g.launch(shared, h, cmd, c)
	case abi.OpDeviceAttribute, abi.OpFunctionAttribute, abi.OpOccupancy:
		return g.describe(h.Op, e, c)
	case abi.OpEventCreate:
		g.handle++
		g.events[g.handle] = 0
		c.Value[0] = g.handle
		return nil
	case abi.OpEventRecord, abi.OpEventWait, abi.OpEventDestroy:
		x, err := abi.DecodeHandle(e)
		if err != nil {
			return err
		}
		if _, ok := g.events[x.Handle]; !ok {
			return abi.StatusInvalidHandle
		}
		switch h.Op {
		case abi.OpEventRecord:
			g.events[x.Handle] = now()
			c.Value[0] = g.events[x.Handle]
		case abi.OpEventDestroy:
			delete(g.events, x.Handle)
		}
		return nil
	case abi.OpWindowAddress:
		if g.windowAddress != nil {
			return g.windowAddress()
		}
	case abi.OpEventElapsed:
		x, err := abi.DecodeElapsed(e)
		if err != nil {
			return err
		}
		c.Value[0] = g.events[x.End] - g.events[x.Start]
		return nil
	case abi.OpLastFault, abi.OpDeviceName:
		x, err := abi.DecodeWindowArg(e)
		if err != nil {
			return err
		}
		b, err := x.Window.Bytes(shared, g.windows)
		if err != nil {
			return err
		}
		text := Name
		if h.Op == abi.OpLastFault {
			text = g.fault
		}
		c.Value[0] = uint64(copy(b, text))
		return nil
	}
	return abi.StatusNotSupported
}

func (g *GPU) doMemory(shared []byte, op abi.Opcode, e *abi.Entry, c *abi.Completion) error {
	switch op {
	case abi.OpMemAlloc:
		x, err := abi.DecodeAlloc(e)
		if err != nil {
			return err
		}
		if x.Size > 1<<30 {
			return abi.StatusOutOfMemory
		}
		if x.Address != 0 {
			if !placeable(x.Address, x.Size) || g.taken(x.Address, x.Size) {
				return abi.StatusInvalidAddress
			}
			g.memory[x.Address] = make([]byte, x.Size)
			c.Value[0] = x.Address
			g.notePeak()
			return nil
		}
		g.memory[g.next] = make([]byte, x.Size)
		c.Value[0] = g.next
		g.next += (x.Size + 0xffff) &^ 0xffff
		g.notePeak()
		return nil
	case abi.OpMemFree:
		x, err := abi.DecodeHandle(e)
		if err != nil {
			return err
		}
		if _, ok := g.memory[x.Handle]; !ok {
			return abi.StatusInvalidAddress
		}
		delete(g.memory, x.Handle)
		return nil
	case abi.OpMemInfo:
		c.Value = [3]uint64{1 << 30, 2 << 30, g.peak}
		return nil
	case abi.OpSet:
		x, err := abi.DecodeSet(e)
		if err != nil {
			return err
		}
		for row := range x.Rows {
			b := g.bytes(x.Dst+row*x.Pitch, x.Count*uint64(x.Width))
			if b == nil {
				return abi.StatusInvalidAddress
			}
			for i := range b {
				b[i] = byte(x.Value >> (8 * (uint32(i) % x.Width)))
			}
		}
		return nil
	}
	x, err := abi.DecodeTransfer(e)
	if err != nil {
		return err
	}
	var src, dst []byte
	if op == abi.OpCopyIn {
		src, err = abi.Window{Offset: x.Src, Size: x.Size}.Bytes(shared, g.windows)
	} else {
		src = g.bytes(x.Src, x.Size)
	}
	if op == abi.OpCopyOut {
		dst, err = abi.Window{Offset: x.Dst, Size: x.Size}.Bytes(shared, g.windows)
	} else {
		dst = g.bytes(x.Dst, x.Size)
	}
	if err == nil && (src == nil || dst == nil) && x.Size > 0 {
		err = abi.StatusInvalidAddress
	}
	copy(dst, src)
	return err
}

func (g *GPU) notePeak() {
	now := uint64(0)
	for _, b := range g.memory {
		now += uint64(len(b))
	}
	g.peak = max(g.peak, now)
}

// Addresses that programs may choose.
const (
	PlacesBase  = 0x4800_0000_0000
	PlacesBytes = 1 << 40
	PlacesGrain = 64 << 10
)

func placeable(p, n uint64) bool {
	return p >= PlacesBase && p%PlacesGrain == 0 && p-PlacesBase <= PlacesBytes && n <= PlacesBytes-(p-PlacesBase)
}

// taken reports whether an allocation has any of n bytes at p.
func (g *GPU) taken(p, n uint64) bool {
	for base, b := range g.memory {
		if p < base+uint64(len(b)) && base < p+n {
			return true
		}
	}
	return false
}

func (g *GPU) doModule(shared []byte, op abi.Opcode, cmd []abi.Entry, c *abi.Completion) error {
	e := &cmd[0]
	switch op {
	case abi.OpModuleLoad:
		x, err := abi.DecodeModule(e)
		if err != nil {
			return err
		}
		image, err := x.Image.Bytes(shared, g.windows)
		if err != nil {
			return err
		}
		if len(image) == 0 || image[0] != '.' {
			log, err := abi.Window{Offset: x.Log, Size: uint64(x.LogBytes)}.Bytes(shared, g.windows)
			if err != nil {
				return err
			}
			c.Value[1] = uint64(copy(log, "line 1: not PTX\nexpected a directive"))
			return abi.StatusInvalidPTX
		}
		if g.refuseForms && strings.Contains(string(image), formSuffix) {
			return abi.StatusUnsupportedPTX
		}
		g.handle++
		g.images[g.handle] = string(image)
		c.Value[0] = g.handle
		if x.LogBytes > 0 {
			log, err := abi.Window{Offset: x.Log, Size: uint64(x.LogBytes)}.Bytes(shared, g.windows)
			if err != nil {
				return err
			}
			c.Value[1] = uint64(copy(log, g.moduleLog))
		}
		return nil
	case abi.OpModuleUnload:
		_, err := abi.DecodeHandle(e)
		return err
	case abi.OpFunctionParam:
		x, err := abi.DecodeQuery(e)
		if err != nil {
			return err
		}
		k, ok := g.kernel(g.handles[x.Handle])
		if !ok || int(x.Key) >= len(k.Params) {
			return abi.StatusInvalidHandle
		}
		offset, _ := k.layout(int(x.Key))
		c.Value[0], c.Value[1] = uint64(offset), uint64(k.Params[x.Key])
		return nil
	}
	x, err := abi.DecodeLookup(e)
	if err != nil {
		return err
	}
	name, err := g.data(shared, cmd, x.Name, uint64(x.NameBytes))
	if err != nil {
		return err
	}
	k, ok := g.kernel(string(name))
	if strings.Contains(string(name), formSuffix) {
		ok = ok && strings.Contains(g.images[x.Module], ".entry "+string(name)+"(")
	}
	if !ok || op == abi.OpGlobal {
		return fmt.Errorf("%s: %w", name, abi.StatusNotFound)
	}
	g.handle++
	g.handles[g.handle] = string(name)
	_, total := k.layout(len(k.Params))
	c.Value = [3]uint64{g.handle, uint64(len(k.Params)), uint64(total)}
	return nil
}

// layout returns where parameter i begins and where the previous one ends.
func (k Kernel) layout(i int) (offset, end int) {
	for j, size := range k.Params {
		offset = (end + size - 1) / size * size
		if j == i {
			return offset, end
		}
		end = offset + size
	}
	return end, end
}

func (g *GPU) launch(shared []byte, h abi.Header, cmd []abi.Entry, c *abi.Completion) error {
	x, err := abi.DecodeLaunch(&cmd[0])
	if err != nil {
		return err
	}
	name := g.handles[x.Function]
	base, _, _ := strings.Cut(name, formSuffix)
	k, ok := g.kernels[base]
	if !ok {
		return abi.StatusInvalidHandle
	}
	attributes := uint64(h.Aux) * abi.EntrySize
	b, err := g.data(shared, cmd, x.Data, attributes+uint64(x.ParamBytes))
	if err != nil {
		return err
	}
	call, err := decodeCall(name, x.Grid, b[:attributes])
	if err != nil {
		return err
	}
	if len(g.calls) == maxCalls {
		g.calls = g.calls[:copy(g.calls, g.calls[maxCalls/2:])]
	}
	g.calls = append(g.calls, call)
	if k.TooLarge&call.Preempt.Form != 0 {
		return abi.StatusLaunchResources
	}
	c.Start = now()
	if k.Run != nil {
		params := slices.Clone(b[attributes:])
		g.mu.Unlock() // a kernel may use the GPU
		err = k.Run(g, x, params)
		g.mu.Lock()
	}
	c.End = now()
	if k.Duration != nil {
		c.End = c.Start + uint64(k.Duration(call))
	}
	if k.Evicted != nil {
		c.Value[0] = k.Evicted(call)
	}
	return err
}
