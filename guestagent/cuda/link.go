package cuda

import (
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/fatbin"
	"vgpud/ptx"
	"vgpud/ptx/link"
)

// linker is a CUlinkState: images that become one.
type linker struct {
	mu      sync.Mutex
	log     *jitLog
	objects []link.Object
	code    []byte // the only image, if it is machine code
	result  []byte // mapped, with a zero at its end
}

// LinkCreateV2 is cuLinkCreate_v2. The program's buffers for messages are written when linking ends.
func (c *Call) LinkCreateV2(n uint32, options *uint32, values *Pointer, out *Handle) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	if out == nil {
		return ErrorInvalidValue
	}
	log, r := newJITLog(n, options, values)
	if r != Success {
		return r
	}
	h := c.d.objects.add(&linker{log: log})
	if h == 0 {
		return ErrorOutOfMemory
	}
	put(out, h)
	return Success
}

// Kinds of input, CUjitInputType.
const (
	inputCubin     = 0
	inputPTX       = 1
	inputFatbinary = 2
)

// LinkAddDataV2 is cuLinkAddData_v2.
func (c *Call) LinkAddDataV2(h Handle, kind uint32, data Pointer, n uint64, name *byte, _ uint32, _ *uint32, _ *Pointer) Result {
	l := get[linker](&c.d.objects, h)
	switch {
	case l == nil:
		return ErrorInvalidHandle
	case data == nil || n == 0 || n > mostImage || access(data, n) != nil:
		return ErrorInvalidValue
	}
	s, _ := text(name)
	return l.add(c.d, kind, hostBytes(data, n), s)
}

// LinkAddFileV2 is cuLinkAddFile_v2.
func (c *Call) LinkAddFileV2(h Handle, kind uint32, path *byte, _ uint32, _ *uint32, _ *Pointer) Result {
	l := get[linker](&c.d.objects, h)
	if l == nil {
		return ErrorInvalidHandle
	}
	name, ok := text(path)
	if !ok {
		return ErrorInvalidValue
	}
	b, r := readImage(name)
	if r != Success {
		return r
	}
	return l.add(c.d, kind, b, name)
}

func (l *linker) add(d *Driver, kind uint32, image []byte, name string) Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.result != nil || kind > inputFatbinary {
		return ErrorInvalidValue
	}
	code, r := d.choose(image)
	if r != Success {
		return r
	}
	if kind == inputPTX && fatbin.Detect(code) != fatbin.FormatPTX {
		return ErrorInvalidPtx
	}
	if fatbin.Detect(code) != fatbin.FormatPTX {
		if len(l.objects) > 0 || l.code != nil { // machine code is not linked here
			return ErrorNotSupported
		}
		if !d.takesCode() {
			return ErrorNoBinaryForGpu
		}
		l.code = slices.Clone(code)
		return Success
	}
	if l.code != nil {
		return ErrorNotSupported
	}
	if name == "" {
		name = fmt.Sprintf("input %d", len(l.objects)+1)
	}
	m, err := ptx.Parse(string(code))
	if err != nil {
		l.log.failed(fmt.Sprintf("%s: %v", name, err))
		return ErrorInvalidPtx
	}
	l.objects = append(l.objects, link.Object{Name: name, Module: m})
	return Success
}

// LinkComplete is cuLinkComplete. Its result stays until the linker is destroyed.
func (c *Call) LinkComplete(h Handle, out *Pointer, size *uint64) Result {
	l := get[linker](&c.d.objects, h)
	if l == nil {
		return ErrorInvalidHandle
	}
	if out == nil {
		return ErrorInvalidValue
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.log.finish()
	if l.result == nil {
		r := l.link()
		if r != Success {
			return r
		}
	}
	put(out, startOf(l.result))
	if size != nil {
		put(size, uint64(len(l.result)))
	}
	return Success
}

// link makes the result; l.mu is held.
func (l *linker) link() Result {
	image := l.code
	switch {
	case image != nil:
	case len(l.objects) == 0:
		return ErrorInvalidImage
	case len(l.objects) == 1:
		// Nothing may be left out of what stands alone: kernels are found by name.
		image = append([]byte(l.objects[0].Module.String()), 0)
	default:
		m, err := link.Link(l.objects, link.Options{})
		l.objects = nil
		if err != nil {
			l.log.failed(err.Error())
			return ErrorInvalidPtx
		}
		image = append([]byte(m.String()), 0)
	}
	b, err := unix.Mmap(-1, 0, len(image), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return ErrorOutOfMemory
	}
	copy(b, image)
	l.result = b
	return Success
}

// LinkDestroy is cuLinkDestroy.
func (c *Call) LinkDestroy(h Handle) Result {
	l := get[linker](&c.d.objects, h)
	if l == nil || !c.d.objects.remove(h) {
		return ErrorInvalidHandle
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.result != nil {
		_ = unix.Munmap(l.result)
		l.result = nil
	}
	return Success
}
