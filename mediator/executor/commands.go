package executor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// command is a fetched command.
type command struct {
	ch    *channel
	h     abi.Header
	entry *abi.Entry
	more  []abi.Entry
}

// handler says how a command is carried out.
type handler struct {
	// run carries the command out, or begins it and sets p.fence.
	run func(c *command, p *pending) error
	// drain has the command wait until earlier commands of its channel have ended.
	drain bool
	// ordered commands do something on the GPU or tell when: they wait for a launch before them
	// that may have to be put there again.
	ordered bool
	// wait, if set, reports whether the command has to wait for something else.
	wait func(c *command) bool
	// blocks is set if the command's call of the driver may wait for the GPU. While the executor
	// has its context off the GPU it would wait for ever, so the command waits until the context is
	// back.
	blocks bool
	// poisoned commands are carried out in a poisoned context too.
	poisoned bool
}

// errWaits is run's error if it finds that the command has to wait.
var errWaits = errors.New("the command waits")

// commands is indexed by opcode. docs/device.md describes the answers.
var commands = [256]handler{
	abi.OpNop:   {run: nop, poisoned: true},
	abi.OpFence: {run: nop},

	abi.OpMemAlloc:      {run: memAlloc},
	abi.OpMemFree:       {run: memFree, drain: true},
	abi.OpMemInfo:       {run: memInfo},
	abi.OpMemRange:      {run: memRange},
	abi.OpWindowAddress: {run: windowAddress},
	abi.OpCopyIn:        {run: copyIn, ordered: true, blocks: true},
	abi.OpCopyOut:       {run: copyOut, ordered: true, blocks: true},
	abi.OpCopy:          {run: copyAcross, ordered: true},
	abi.OpCopy3D:        {run: copyBox, ordered: true, blocks: true},
	abi.OpSet:           {run: set, ordered: true},

	abi.OpModuleLoad:           {run: moduleLoad, blocks: true},
	abi.OpModuleUnload:         {run: moduleUnload, drain: true, blocks: true},
	abi.OpGlobal:               {run: global},
	abi.OpFunction:             {run: lookupFunction},
	abi.OpFunctionAttribute:    {run: functionAttribute},
	abi.OpFunctionSetAttribute: {run: functionSetAttribute},
	abi.OpFunctionParam:        {run: functionParam},
	abi.OpOccupancy:            {run: occupancy},

	abi.OpLaunch: {run: launch, wait: launchWaits, ordered: true},

	abi.OpEventCreate:  {run: eventCreate},
	abi.OpEventDestroy: {run: eventDestroy},
	abi.OpEventRecord:  {run: eventRecord, ordered: true},
	abi.OpEventWait:    {run: eventWait, wait: eventWaits},
	abi.OpEventQuery:   {run: eventQuery},
	abi.OpEventElapsed: {run: eventElapsed},
	abi.OpEventTrigger: {run: eventTrigger, drain: true},
	abi.OpEventAwait:   {run: eventAwait, wait: eventAwaits},

	abi.OpEventKernelRegister:   {run: registerEventKernel},
	abi.OpEventKernelUnregister: {run: unregisterEventKernel},
	abi.OpEventKernelQuery:      {run: queryEventKernel},

	abi.OpLimit:            {run: limit},
	abi.OpSetLimit:         {run: setLimit, drain: true, blocks: true},
	abi.OpPrintfDrain:      {run: printfDrain, drain: true, blocks: true, poisoned: true},
	abi.OpLastFault:        {run: lastFault, poisoned: true},
	abi.OpDeviceAttribute:  {run: deviceAttribute},
	abi.OpDeviceAttributes: {run: deviceAttributes},
	abi.OpDeviceName:       {run: deviceName},
	abi.OpTimestamp:        {run: timestamp},

	abi.OpArrayCreate:    {run: arrayCreate, blocks: true},
	abi.OpArrayDestroy:   {run: arrayDestroy, drain: true, blocks: true},
	abi.OpArrayCopy:      {run: arrayCopy, ordered: true, blocks: true},
	abi.OpTextureCreate:  {run: textureCreate},
	abi.OpTextureDestroy: {run: textureDestroy, drain: true},
	abi.OpSurfaceCreate:  {run: surfaceCreate},
	abi.OpSurfaceDestroy: {run: surfaceDestroy, drain: true},
	abi.OpTextureBind:    {run: textureBind, drain: true},
}

// nop is a command that only has a place in the channel.
func nop(c *command, _ *pending) error {
	_, err := abi.DecodeEmpty(c.entry)
	return err
}

// window returns a part of BAR2 that a command names.
func (c *command) window(offset, size uint64) ([]byte, error) {
	return abi.Window{Offset: offset, Size: size}.Bytes(c.ch.x.o.Shared, c.ch.x.o.Windows)
}

// data copies size bytes of a command's data, at most limit, out of its continuation entries or, if
// it has none, out of BAR2.
func (c *command) data(offset, size, limit uint64) ([]byte, error) {
	return c.dataIn(nil, offset, size, limit)
}

// dataIn is data that reuses memory.
func (c *command) dataIn(data []byte, offset, size, limit uint64) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("%d bytes of data, at most %d: %w", size, limit, abi.StatusInvalidValue)
	}
	data = slices.Grow(data[:0], int(size))[:size]
	if size == 0 {
		return data, nil
	}
	if len(c.more) == 0 {
		w, err := c.window(offset, size)
		if err != nil {
			return nil, err
		}
		copy(data, w)
		return data, nil
	}
	if uint64(len(c.more)) != (size+abi.EntrySize-1)/abi.EntrySize {
		return nil, fmt.Errorf("%d bytes of data in %d entries: %w", size, len(c.more), abi.StatusMalformed)
	}
	for i := range c.more {
		copy(data[i*abi.EntrySize:], c.more[i][:])
	}
	return data, nil
}

// answer writes text to the window that the command names, and its length to the completion.
func (c *command) answer(p *pending, text []byte) error {
	a, err := abi.DecodeWindowArg(c.entry)
	if err != nil {
		return err
	}
	w, err := c.window(a.Window.Offset, a.Window.Size)
	if err != nil {
		return err
	}
	p.com.Value[0] = uint64(copy(w, text))
	return nil
}

// query decodes the payload of commands that read a number.
func (c *command) query() (abi.Query, error) { return abi.DecodeQuery(c.entry) }

func lastFault(c *command, p *pending) error {
	p.com.Value[1] = uint64(c.ch.x.status)
	return c.answer(p, []byte(c.ch.x.lastFault))
}

func deviceName(c *command, p *pending) error { return c.answer(p, []byte(c.ch.x.props.Name)) }

func printfDrain(c *command, p *pending) error {
	a, err := abi.DecodeWindowArg(c.entry)
	if err != nil {
		return err
	}
	if _, err := c.window(a.Window.Offset, a.Window.Size); err != nil {
		return err
	}
	x := c.ch.x
	if n := min(uint64(len(x.printed)), a.Window.Size); n > 0 {
		err := c.answer(p, x.printed[:n])
		x.printed = x.printed[n:]
		return err
	}
	text, err := x.o.Context.Printf(int(min(a.Window.Size, maxImage)))
	if err != nil {
		return err
	}
	return c.answer(p, text)
}

// guestTime returns what the guest is told of an instant of the GPU's clock; 0 is none.
func (x *Executor) guestTime(t time.Duration) uint64 {
	if t == 0 {
		return 0
	}
	return uint64(t + x.shift)
}

// now returns the GPU's time, as the guest knows it.
func (x *Executor) now() (time.Duration, error) {
	now, err := x.o.Device.Now()
	return now + x.shift, err
}

func timestamp(c *command, p *pending) error {
	if _, err := abi.DecodeEmpty(c.entry); err != nil {
		return err
	}
	now, err := c.ch.x.now()
	p.com.Value[0] = uint64(now)
	return err
}
