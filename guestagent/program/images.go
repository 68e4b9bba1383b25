package program

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"vgpud/guestagent/fatbin"
	"vgpud/guestagent/preempt"
	"vgpud/ptx"
	"vgpud/ptx/link"
)

// Compiler is what made an image, as far as its text tells.
type Compiler string

// The compilers that are told apart.
const (
	NVIDIA  Compiler = "NVIDIA"
	LLVM    Compiler = "LLVM" // clang, Halide and others
	GCC     Compiler = "GCC"
	Unknown Compiler = ""
)

// Image is device code in a program: a fat binary, PTX text, or all objects of GCC's offloading
// together.
type Image struct {
	Where    string   `json:"where"` // the section, or "text", and the offset in the file
	Kind     string   `json:"kind"`  // "fat binary", "relocatable fat binary", "PTX" or "GCC objects"
	Compiler Compiler `json:"compiler,omitempty"`
	PTX      []string `json:"ptx,omitempty"`          // targets of its PTX: "sm_80"
	Code     []string `json:"machine_code,omitempty"` // targets of its machine code
	Error    string   `json:"error,omitempty"`
	Kernels  []Kernel `json:"kernels,omitempty"`
}

// Kernel is what becomes of one kernel.
type Kernel struct {
	Name        string         `json:"name"`
	Preemptible bool           `json:"preemptible"`
	Forms       []string       `json:"forms"`
	Reason      preempt.Reason `json:"reason,omitempty"` // why it has no form, or not all
	Detail      string         `json:"detail,omitempty"`
}

// preamble is how GCC's PTX begins.
const preamble = "// BEGIN PREAMBLE"

// finder collects a program's images.
type finder struct {
	ctx    context.Context
	opts   Options
	f      *file
	images []Image
	objs   []link.Object // GCC's
	bytes  int           // of PTX so far
}

// find finds all images in a file.
func (d *finder) find() error {
	var skip []section // fat binaries, in which no text is looked for
	for i := range d.f.sections {
		s := &d.f.sections[i]
		if s.name != ".nv_fatbin" && s.name != "__nv_relfatbin" {
			continue
		}
		skip = append(skip, *s)
		d.fatBinaries(s)
	}
	d.texts(skip)
	d.offloaded()
	return context.Cause(d.ctx)
}

// full reports whether no more images are listed.
func (d *finder) full() bool {
	return len(d.images) >= d.opts.MaxImages || d.ctx.Err() != nil
}

// fatBinaries adds the containers of a section.
func (d *finder) fatBinaries(s *section) {
	relocatable := s.name == "__nv_relfatbin"
	kind := "fat binary"
	if relocatable {
		kind = "relocatable fat binary"
	}
	all, err := fatbin.Options{MaxData: int64(d.opts.MaxPTXBytes)}.ParseAll(d.f.contents(s))
	for i, c := range all {
		if d.full() {
			return
		}
		img := Image{Where: fmt.Sprintf("%s, container %d", s.name, i), Kind: kind}
		d.container(&img, c, relocatable)
		d.images = append(d.images, img)
	}
	if err != nil && !d.full() {
		d.images = append(d.images, Image{Where: s.name, Kind: kind, Error: err.Error()})
	}
}

// container describes one container, and the kernels of its newest PTX.
func (d *finder) container(img *Image, c *fatbin.Container, relocatable bool) {
	const anyGPU = 1 << 20
	for _, e := range c.Entries {
		target := fmt.Sprintf("sm_%d", e.SM)
		switch e.Kind {
		case fatbin.PTX:
			img.PTX = append(img.PTX, target)
		case fatbin.ELF:
			img.Code = append(img.Code, target)
		}
	}
	if len(img.PTX) == 0 {
		img.Compiler = NVIDIA // nothing else makes machine code
		return
	}
	_, text, err := c.Choose(fatbin.Capability{Major: anyGPU}, false)
	if err != nil {
		// Its PTX may all be of single architectures.
		if e := newest(c); e != nil {
			text, err = e.Data()
		}
	}
	switch {
	case err != nil:
		img.Error = err.Error()
	case relocatable:
		img.Compiler = compilerOf(text)
	default:
		d.module(img, text)
	}
}

// newest returns the PTX for the newest architecture.
func newest(c *fatbin.Container) (best *fatbin.Entry) {
	for i := range c.Entries {
		if e := &c.Entries[i]; e.Kind == fatbin.PTX && (best == nil || e.SM > best.SM) {
			best = e
		}
	}
	return best
}

// compilerOf returns what made a text.
func compilerOf(text []byte) Compiler {
	head := text[:min(len(text), 4096)]
	switch {
	case bytes.HasPrefix(text, []byte(preamble)):
		return GCC
	case bytes.Contains(head, []byte("NVIDIA NVVM Compiler")), bytes.Contains(head, []byte("Compiler Build ID: CL-")):
		return NVIDIA
	case bytes.Contains(head, []byte("LLVM NVPTX Back-End")):
		return LLVM
	}
	return Unknown
}

// texts adds PTX that stands in the file as text, except within some sections.
func (d *finder) texts(skip []section) {
	version := []byte(".version ")
	b := d.f.b
	for pos := 0; !d.full(); {
		i := bytes.Index(b[pos:], version)
		if i < 0 {
			return
		}
		at := pos + i
		pos = at + len(version)
		inside := false
		for _, s := range skip {
			if off := uint64(at); off >= s.offset && off-s.offset < s.size {
				pos = max(pos, int(min(s.offset+s.size, uint64(len(b)))))
				inside = true
			}
		}
		if inside || !looksLikePTX(b[at:]) {
			continue
		}
		// Comments may precede it; a zero ends the text before.
		const mostComments = 4096
		from := max(0, at-mostComments)
		start := from + bytes.LastIndexByte(b[from:at], 0) + 1
		if fatbin.Detect(b[start:]) != fatbin.FormatPTX {
			continue
		}
		end := bytes.IndexByte(b[at:min(len(b), at+d.opts.MaxPTXBytes+1)], 0)
		if end < 0 {
			pos = min(len(b), at+d.opts.MaxPTXBytes) // nor does any text between end before
			continue
		}
		text := b[start : at+end]
		pos = at + end
		d.text(start, text)
	}
}

// looksLikePTX reports whether a .version directive is followed by a number, and by a .target
// directive soon.
func looksLikePTX(b []byte) bool {
	b = b[:min(len(b), 256)]
	rest := bytes.TrimLeft(b[len(".version "):], " ")
	return len(rest) > 0 && rest[0] >= '1' && rest[0] <= '9' && bytes.Contains(rest, []byte("\n.target"))
}

// text adds one text: an object of GCC's, or a module.
func (d *finder) text(at int, text []byte) {
	if compilerOf(text) == GCC {
		m, err := d.parse(text)
		if err != nil {
			d.images = append(d.images, Image{Where: fmt.Sprintf("text at %#x", at), Kind: "GCC objects", Compiler: GCC, Error: err.Error()})
			return
		}
		if len(d.objs) < d.opts.MaxImages {
			d.objs = append(d.objs, link.Object{Name: fmt.Sprintf("object %d", len(d.objs)), Module: m})
		}
		return
	}
	img := Image{Where: fmt.Sprintf("text at %#x", at), Kind: "PTX"}
	d.module(&img, text)
	d.images = append(d.images, img)
}

// offloaded links the objects of GCC's offloading, which libgomp loads as one program.
func (d *finder) offloaded() {
	if len(d.objs) == 0 {
		return
	}
	img := Image{Where: fmt.Sprintf("%d texts", len(d.objs)), Kind: "GCC objects", Compiler: GCC}
	m, err := link.Link(d.objs, link.Options{})
	if err != nil {
		img.Error = err.Error()
	} else {
		d.kernels(&img, m)
	}
	d.images = append(d.images, img)
}

// module adds the kernels of PTX.
func (d *finder) module(img *Image, text []byte) {
	img.Compiler = compilerOf(text)
	m, err := d.parse(text)
	if err != nil {
		img.Error = err.Error()
		return
	}
	d.kernels(img, m)
}

// parse parses PTX within the bounds.
func (d *finder) parse(text []byte) (*ptx.Module, error) {
	if d.bytes += len(text); d.bytes > d.opts.MaxPTXBytes {
		return nil, fmt.Errorf("more than %d MiB of PTX: not examined", d.opts.MaxPTXBytes>>20)
	}
	return ptx.Options{MaxBytes: d.opts.MaxPTXBytes}.ParseContext(d.ctx, string(text))
}

// kernels adds what becomes of a module's kernels.
func (d *finder) kernels(img *Image, m *ptx.Module) {
	if len(m.Target) > 0 && len(img.PTX) == 0 {
		img.PTX = []string{strings.Join(m.Target, ", ")}
	}
	_, reports, err := preempt.Transform(m, preempt.Options{})
	if err != nil {
		img.Error = err.Error()
		return
	}
	for _, r := range reports {
		k := Kernel{Name: r.Kernel, Preemptible: r.Preemptible, Forms: []string{}, Reason: r.Reason, Detail: r.Detail}
		for _, form := range r.Forms {
			k.Forms = append(k.Forms, form.String())
		}
		img.Kernels = append(img.Kernels, k)
	}
}
