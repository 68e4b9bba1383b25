package executor

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// module is a loaded module with the functions looked up in it.
type module struct {
	gpu       gpu.Module
	functions map[string]uint64
	hash      [sha256.Size]byte // of the image
	// Of a context that may move: the image, the address that was chosen for its variables, 0 for none,
	// and the limit of the stack when it was loaded, 0 if that was the GPU's own.
	image []byte
	at    gpu.Ptr
	stack uint64
}

// function is a kernel, with what is known about its duration.
type function struct {
	gpu          gpu.Function
	attrs        gpu.FunctionAttributes
	module       uint64
	mean         time.Duration     // of its launches; 0: none has ended yet
	hint         time.Duration     // the guest's own estimate
	hash         uint64            // tells kernels apart by content
	unresponsive bool              // it is declared preemptible, and did not leave when asked
	set          map[uint32]uint64 // attributes that the guest has set
	// shape is the block shape of the last launch, and how many such blocks an SM holds.
	shape struct {
		threads  int
		shared   uint64
		resident int
	}
}

// kernelHash identifies a kernel by its content: kernels of one image and name are the same in all
// guests. No guest can make a kernel with another's hash.
func (m *module) kernelHash(name string) uint64 {
	h := sha256.Sum256(append(m.hash[:len(m.hash):len(m.hash)], name...))
	return binary.LittleEndian.Uint64(h[:])
}

// ran updates the mean by a launch that took d. A longer launch replaces the mean at once, since
// too much on the GPU can't be taken back; a shorter one lowers it gradually.
func (f *function) ran(d time.Duration) {
	f.mean = max(d, f.mean+(d-f.mean)/8)
}

// expected returns how long a launch is expected to take. known is false before one has ended. A
// guest's own estimate counts only if it is longer.
func (f *function) expected() (d time.Duration, known bool) {
	return max(f.mean, f.hint), f.mean > 0
}

// moduleLoad loads a module. Its log has a line for the guest about what is wrong with the image
// or, if it is loaded, about each kernel that can't be launched.
func moduleLoad(c *command, p *pending) error {
	x := c.ch.x
	m, err := abi.DecodeModule(c.entry)
	if err != nil {
		return err
	}
	if m.Flags != 0 {
		return fmt.Errorf("module flags %#x: %w", m.Flags, abi.StatusInvalidValue)
	}
	if m.Format > abi.FormatFat {
		return fmt.Errorf("module format %d: %w", m.Format, abi.StatusInvalidValue)
	}
	if m.Format > abi.FormatPTX && !x.props.MachineCode {
		return abi.StatusNoBinary
	}
	var log []byte
	if m.LogBytes > 0 {
		if log, err = c.window(m.Log, uint64(m.LogBytes)); err != nil {
			return err
		}
	}
	asking, err := x.attempt(&x.refusedLoad, m.Image.Size)
	if err != nil {
		return err
	}
	image, err := c.data(m.Image.Offset, m.Image.Size, maxImage)
	if err != nil {
		return err
	}
	loaded, at, err := x.load(image)
	if err = x.grows(0, x.attempted(asking, err)); err == errWaits {
		return err
	}
	if err != nil {
		p.com.Value[1] = uint64(copy(log, guestText(err)))
		if errors.Is(err, gpu.ErrUnsupported) {
			return abi.StatusUnsupportedPTX
		}
		return err
	}
	added := &module{gpu: loaded, functions: make(map[string]uint64), hash: hashOf(image), at: at}
	if at != 0 {
		added.image, added.stack = image, x.stackLimit()
	}
	p.com.Value[0], err = x.modules.add(added)
	if err != nil {
		return errors.Join(err, loaded.Unload())
	}
	if m, ok := loaded.(gpu.Partial); ok {
		p.com.Value[1] = uint64(copyLines(log, m.Refused()))
	}
	return nil
}

// copyLines writes a line for each error to b, as long as there is room for whole lines, and
// returns the number of bytes.
func copyLines(b []byte, all []error) (n int) {
	for _, err := range all {
		if line := guestText(err) + "\n"; len(line) <= len(b)-n {
			n += copy(b[n:], line)
		}
	}
	return n
}

func moduleUnload(c *command, _ *pending) error {
	x := c.ch.x
	h, err := abi.DecodeHandle(c.entry)
	if err != nil {
		return err
	}
	m, err := x.modules.get(h.Handle)
	if err != nil {
		return err
	}
	if x.registersModule(h.Handle) {
		return fmt.Errorf("unload a module with registered event kernels: %w", abi.StatusNotReady)
	}
	if err := m.gpu.Unload(); err != nil {
		return err
	}
	for _, id := range m.functions {
		delete(x.functions.byID, id)
	}
	delete(x.modules.byID, h.Handle)
	x.forgetRefusals()
	return nil
}

// name returns the module and the symbol that a lookup names.
func (c *command) name() (m *module, id uint64, name string, err error) {
	l, err := abi.DecodeLookup(c.entry)
	if err != nil {
		return nil, 0, "", err
	}
	if m, err = c.ch.x.modules.get(l.Module); err != nil {
		return nil, 0, "", err
	}
	b, err := c.data(l.Name, uint64(l.NameBytes), maxName)
	return m, l.Module, string(b), err
}

func global(c *command, p *pending) error {
	m, _, name, err := c.name()
	if err != nil {
		return err
	}
	ptr, size, err := m.gpu.Global(name)
	p.com.Value[0], p.com.Value[1] = uint64(ptr), size
	return err
}

func lookupFunction(c *command, p *pending) error {
	m, id, name, err := c.name()
	if err != nil {
		return err
	}
	h, known := m.functions[name]
	if !known {
		f, err := m.gpu.Function(name)
		if err != nil {
			return err
		}
		if h, err = c.ch.x.functions.add(&function{gpu: f, attrs: f.Attributes(), module: id, hash: m.kernelHash(name)}); err != nil {
			return err
		}
		m.functions[name] = h
	}
	f, err := c.ch.x.functions.get(h)
	if err != nil {
		return err
	}
	p.com.Value = [3]uint64{h, uint64(len(f.attrs.Params)), f.attrs.ParamBytes}
	return nil
}

func functionAttribute(c *command, p *pending) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	f, err := c.ch.x.functions.get(q.Handle)
	if err != nil {
		return err
	}
	a, d := &f.attrs, &c.ch.x.props
	values := map[uint32]uint64{
		abi.FunctionMaxThreads:       uint64(a.MaxThreadsPerBlock),
		abi.FunctionSharedBytes:      a.SharedBytes,
		abi.FunctionConstBytes:       a.ConstBytes,
		abi.FunctionLocalBytes:       a.LocalBytes,
		abi.FunctionRegisters:        uint64(a.Registers),
		abi.FunctionPTXVersion:       uint64(a.PTXVersion),
		abi.FunctionBinaryVersion:    uint64(a.BinaryVersion),
		abi.FunctionCacheModeCA:      0,
		abi.FunctionMaxDynamicShared: d.SharedPerBlockOptin - min(a.SharedBytes, d.SharedPerBlockOptin),
		abi.FunctionCarveout:         ^uint64(0), // -1: none is preferred
		abi.FunctionParams:           uint64(len(a.Params)),
		abi.FunctionParamBytes:       a.ParamBytes,
	}
	if v, ok := f.set[q.Key]; ok {
		values[q.Key] = v
	}
	v, ok := values[q.Key]
	if !ok {
		return fmt.Errorf("function attribute %d: %w", q.Key, abi.StatusNotSupported)
	}
	p.com.Value[0] = v
	return nil
}

// functionSetAttribute sets an attribute. A launch may use as much shared memory as the GPU has
// anyway, and the carveout is a hint, so both are only kept.
func functionSetAttribute(c *command, _ *pending) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	f, err := c.ch.x.functions.get(q.Handle)
	if err != nil {
		return err
	}
	most := c.ch.x.props.SharedPerBlockOptin
	switch v := int64(q.Value); {
	case q.Key != abi.FunctionMaxDynamicShared && q.Key != abi.FunctionCarveout:
		return fmt.Errorf("set function attribute %d: %w", q.Key, abi.StatusNotSupported)
	case q.Key == abi.FunctionMaxDynamicShared && (v < 0 || q.Value > most-min(f.attrs.SharedBytes, most)),
		q.Key == abi.FunctionCarveout && (v < -1 || v > 100):
		return fmt.Errorf("function attribute %d of %d: %w", q.Key, v, abi.StatusInvalidValue)
	}
	if f.set == nil {
		f.set = make(map[uint32]uint64)
	}
	f.set[q.Key] = q.Value
	return nil
}

func functionParam(c *command, p *pending) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	f, err := c.ch.x.functions.get(q.Handle)
	if err != nil {
		return err
	}
	if uint64(q.Key) >= uint64(len(f.attrs.Params)) {
		return fmt.Errorf("parameter %d of %d: %w", q.Key, len(f.attrs.Params), abi.StatusInvalidValue)
	}
	p.com.Value[0], p.com.Value[1] = f.attrs.Params[q.Key].Offset, f.attrs.Params[q.Key].Size
	return nil
}

func occupancy(c *command, p *pending) error {
	o, err := abi.DecodeOccupancy(c.entry)
	if err != nil {
		return err
	}
	f, err := c.ch.x.functions.get(o.Function)
	if err != nil {
		return err
	}
	if o.Flags != 0 || o.BlockThreads == 0 {
		return fmt.Errorf("occupancy of %d threads with flags %#x: %w", o.BlockThreads, o.Flags, abi.StatusInvalidValue)
	}
	n, err := f.gpu.Occupancy(int(o.BlockThreads), o.SharedBytes)
	p.com.Value[0] = uint64(max(n, 0))
	return err
}
