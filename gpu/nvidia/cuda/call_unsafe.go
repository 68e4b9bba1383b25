package cuda

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// call calls a function of the library whose arguments are plain numbers. It does not allocate.
func (l *Library) call(f function, args ...uintptr) error { return result(l.raw(f, args...)) }

// raw is call with the driver's own result, including success.
func (l *Library) raw(f function, args ...uintptr) Error {
	if l.fn[f] == 0 && f >= optional {
		return ErrNotSupported
	}
	if l.fn[f] == 0 {
		return ErrNotInitialized // only Open itself calls a function that the library lacks
	}
	// SyscallN would move a slice of the caller's to the heap.
	a := blocks.Get().(*[maxArguments]uintptr)
	n := copy(a[:], args)
	r, _, _ := purego.SyscallN(l.fn[f], a[:n]...)
	blocks.Put(a)
	return Error(uint32(r))
}

// maxArguments is the argument count of cuLaunchKernel.
const maxArguments = 11

var blocks = sync.Pool{New: func() any { return new([maxArguments]uintptr) }}

// scratch receives the library's results. It is on the heap, where objects do not move, and is
// reused.
type scratch struct {
	word [2]uint64
	text [256]byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// at returns the address of a result.
func (s *scratch) at(i int) uintptr { return uintptr(unsafe.Pointer(&s.word[i])) }

// answers calls f with room for up to two results.
func answers(f func(s *scratch) error) (a, b uint64, err error) {
	s := scratches.Get().(*scratch)
	s.word = [2]uint64{}
	err = f(s)
	a, b = s.word[0], s.word[1]
	scratches.Put(s)
	return a, b, err
}

// address returns the address of a slice's memory, even of an empty or nil slice. The memory is on
// the heap or is not Go's at all. The caller keeps it alive.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// DeviceGetName returns a name of at most 255 bytes.
func (l *Library) DeviceGetName(d Device) (string, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	err := l.call(cuDeviceGetName, uintptr(unsafe.Pointer(&s.text[0])), uintptr(len(s.text)), uintptr(d))
	return s.string(), err
}

// DeviceGetPCIBusID returns an address such as "0000:00:05.0".
func (l *Library) DeviceGetPCIBusID(d Device) (string, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	err := l.call(cuDeviceGetPCIBusID, uintptr(unsafe.Pointer(&s.text[0])), uintptr(len(s.text)), uintptr(d))
	return s.string(), err
}

// string returns the text up to its zero byte, and clears it.
func (s *scratch) string() string {
	n := 0
	for n < len(s.text) && s.text[n] != 0 {
		n++
	}
	t := string(s.text[:n])
	clear(s.text[:])
	return t
}

// DeviceGetUUID returns the 16 bytes of the device's UUID, or of its MIG instance's.
func (l *Library) DeviceGetUUID(d Device) (uuid [16]byte, err error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	err = l.call(cuDeviceGetUuid, uintptr(unsafe.Pointer(&s.text[0])), uintptr(d))
	copy(uuid[:], s.text[:])
	clear(s.text[:])
	return uuid, err
}

// EventElapsedTime returns the milliseconds from one reached event to another, with the precision
// of a float32: 61 ns within a second, less beyond.
func (l *Library) EventElapsedTime(from, to Event) (float32, error) {
	s := scratches.Get().(*scratch)
	s.word[0] = 0
	err := l.call(cuEventElapsedTime, s.at(0), uintptr(from), uintptr(to))
	ms := *(*float32)(unsafe.Pointer(&s.word[0]))
	scratches.Put(s)
	return ms, err
}

// jit option numbers (CUjit_option).
const (
	jitInfoLogBuffer       = 3
	jitInfoLogBufferBytes  = 4
	jitErrorLogBuffer      = 5
	jitErrorLogBufferBytes = 6
)

// logBytes is the length of the compiler's log that is kept.
const logBytes = 8 << 10

// ModuleLoadData loads PTX, a cubin or a fatbin. log is the compiler's output if that failed. image
// need not end with a zero byte: PTX has to, so one is appended.
func (l *Library) ModuleLoadData(image []byte) (m Module, log string, err error) {
	type arguments struct {
		module  uintptr
		options [2]uint32
		values  [2]uintptr
		log     [logBytes]byte
		image   []byte
	}
	a := &arguments{image: append(append(make([]byte, 0, len(image)+1), image...), 0)}
	a.options = [2]uint32{jitErrorLogBuffer, jitErrorLogBufferBytes}
	a.values = [2]uintptr{uintptr(unsafe.Pointer(&a.log[0])), logBytes}
	var pin runtime.Pinner
	pin.Pin(a)
	defer pin.Unpin()
	err = l.call(cuModuleLoadDataEx, uintptr(unsafe.Pointer(&a.module)), address(a.image),
		uintptr(len(a.options)), uintptr(unsafe.Pointer(&a.options)), uintptr(unsafe.Pointer(&a.values)))
	n := 0
	for n < len(a.log) && a.log[n] != 0 {
		n++
	}
	runtime.KeepAlive(a.image)
	return Module(a.module), string(a.log[:n]), err
}

// ModuleEnumerateFunctions returns all of a module's kernels.
func (l *Library) ModuleEnumerateFunctions(m Module) ([]Function, error) {
	n, _, err := answers(func(s *scratch) error { return l.call(cuModuleGetFunctionCount, s.at(0), uintptr(m)) })
	if err != nil || uint32(n) == 0 {
		return nil, err
	}
	fs := make([]Function, uint32(n))
	err = l.call(cuModuleEnumerateFunctions, uintptr(unsafe.Pointer(&fs[0])), uintptr(len(fs)), uintptr(m))
	runtime.KeepAlive(fs)
	return fs, err
}

// named calls f with name as a C string.
func named(name string, f func(name uintptr) error) error {
	b := append([]byte(name), 0)
	var pin runtime.Pinner
	pin.Pin(&b[0])
	defer pin.Unpin()
	return f(address(b))
}

// Args holds one launch's arguments in the library's form. It can be reused, for one launch at a
// time. It must be on the heap: use [NewArgs].
type Args struct {
	extra [5]uintptr
	size  uintptr
	// Params is the parameter buffer.
	Params [32 << 10]byte
}

// Kinds of entries in cuLaunchKernel's extra.
const (
	launchParamEnd           = 0
	launchParamBufferPointer = 1
	launchParamBufferSize    = 2
)

// NewArgs returns empty arguments.
func NewArgs() *Args {
	a := new(Args)
	a.extra = [5]uintptr{
		launchParamBufferPointer, uintptr(unsafe.Pointer(&a.Params[0])),
		launchParamBufferSize, uintptr(unsafe.Pointer(&a.size)), launchParamEnd,
	}
	return a
}

// LaunchKernel launches f with the first n bytes of a.Params. The driver has copied them when the
// call returns.
func (l *Library) LaunchKernel(f Function, grid, block [3]uint32, shared uint32, s Stream, a *Args, n int) error {
	a.size = uintptr(n)
	extra := uintptr(unsafe.Pointer(&a.extra[0]))
	if n == 0 {
		extra = 0
	}
	err := l.call(cuLaunchKernel, uintptr(f), uintptr(grid[0]), uintptr(grid[1]), uintptr(grid[2]),
		uintptr(block[0]), uintptr(block[1]), uintptr(block[2]), uintptr(shared), uintptr(s), 0, extra)
	runtime.KeepAlive(a)
	return err
}

// Memcpy3DAsync copies the box that c describes.
func (l *Library) Memcpy3DAsync(c *Memcpy3D, s Stream) error {
	var pin runtime.Pinner
	pin.Pin(c)
	defer pin.Unpin()
	return l.call(cuMemcpy3DAsync, uintptr(unsafe.Pointer(c)), uintptr(s))
}

// Address returns the GPU's address of page-locked memory, which is also the program's.
func Address(mem []byte) DevicePtr { return DevicePtr(address(mem)) }

// ArrayCreate makes an array. Its contents are undefined.
func (l *Library) ArrayCreate(d *Array3D) (Array, error) {
	a, err := l.made(cuArray3DCreate, unsafe.Pointer(d), nil)
	return Array(a), err
}

// TexObjectCreate makes a texture.
func (l *Library) TexObjectCreate(r *ResourceDesc, t *TextureDesc) (uint64, error) {
	return l.made(cuTexObjectCreate, unsafe.Pointer(r), unsafe.Pointer(t))
}

// SurfObjectCreate makes a surface of an array.
func (l *Library) SurfObjectCreate(r *ResourceDesc) (uint64, error) {
	return l.made(cuSurfObjectCreate, unsafe.Pointer(r), nil)
}

// made calls a function that makes an object, and returns its handle. Functions with fewer
// arguments ignore the last ones.
func (l *Library) made(f function, descriptions ...unsafe.Pointer) (uint64, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	var at [2]uintptr
	for i, d := range descriptions {
		if d != nil {
			pin.Pin(d)
			at[i] = uintptr(d)
		}
	}
	h, _, err := answers(func(s *scratch) error { return l.call(f, s.at(0), at[0], at[1], 0) })
	return h, err
}

// reference returns a module's texture or surface reference.
func (l *Library) reference(f function, m Module, name string) (uintptr, error) {
	text := append([]byte(name), 0)
	var pin runtime.Pinner
	pin.Pin(&text[0])
	defer pin.Unpin()
	ref, _, err := answers(func(s *scratch) error {
		return l.call(f, s.at(0), uintptr(m), uintptr(unsafe.Pointer(&text[0])))
	})
	return uintptr(ref), err
}

func (l *Library) setBorder(ref uintptr, t *TextureDesc) error {
	var pin runtime.Pinner
	pin.Pin(t)
	defer pin.Unpin()
	return l.call(cuTexRefSetBorderColor, ref, uintptr(unsafe.Pointer(&t.BorderColor)))
}

func (l *Library) setAddress2D(ref uintptr, d *Array2D, p DevicePtr, pitch uint64) error {
	var pin runtime.Pinner
	pin.Pin(d)
	defer pin.Unpin()
	return l.call(cuTexRefSetAddress2D, ref, uintptr(unsafe.Pointer(d)), uintptr(p), uintptr(pitch))
}
