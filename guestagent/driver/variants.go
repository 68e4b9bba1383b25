package driver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"vgpud/guestagent/preempt"
	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

// The forms of a module's kernels are made when the module is loaded, and in the same module: in a
// module of their own they would have their own copies of its variables. The text grows four- to
// fivefold. To limit that, no forms are made of kernels that are known to be short, and fewer if
// the text would be too long. Only launches show which form is best: persistent blocks leave in a
// fraction of the time of an early exit, and cost as little for some kernels and much more for
// others.

// maxSource bounds the modules that forms are made of: a second per 5 MB. maxImage is a host's
// limit.
const (
	maxSource = 4 << 20
	maxImage  = 16 << 20
)

// variants are a module's kernels and their forms.
type variants struct {
	image    []byte           // what to load; nil means the module as it was written
	unlisted Preemption       // of kernels that are not in kernels
	kernels  map[string]*plan // by name
}

// plan says which forms of a kernel are made, and why not others.
type plan struct {
	key            cache.Key
	offered, made  abi.PreemptForm
	reason, detail string
	record         tune.Record
	short          bool // known to be short, and not made for that reason
	ordered        bool // its blocks wait for earlier ones, in the order of a grid of one dimension
}

// variants makes the forms of a module's kernels. room bounds the size of the text.
func (p *preemption) variants(ctx context.Context, image []byte, room int) *variants {
	if p.disabled.Reason != "" {
		return &variants{unlisted: p.disabled}
	}
	source := bytes.TrimRight(image, "\x00")
	if bytes.HasPrefix(source, []byte("\x7fELF")) || bytes.HasPrefix(source, []byte{0x50, 0xed, 0x55, 0xba}) {
		return &variants{unlisted: Preemption{Reason: reasonNotPTX}}
	}
	if len(source) > maxSource {
		return &variants{unlisted: Preemption{Reason: reasonTooLong}}
	}
	m, err := ptx.Options{MaxBytes: maxSource}.ParseContext(ctx, string(source))
	if err != nil {
		return &variants{unlisted: Preemption{Reason: reasonSyntax, Detail: firstLine(err)}}
	}
	v := &variants{kernels: map[string]*plan{}}
	for name, hash := range hashKernels(m) {
		v.kernels[name] = &plan{key: cache.Key{Kernel: hash, GPU: p.gpu}}
	}
	v.applyRecords(ctx, p)
	if v.allShort() {
		return v // skipping the transformation saves most of the time
	}
	out, reports, err := preempt.Transform(m, preempt.Options{Forms: p.opts.Forms})
	if err != nil {
		return &variants{unlisted: Preemption{Reason: reasonSyntax, Detail: firstLine(err)}}
	}
	for i := range reports {
		r := &reports[i]
		k := v.kernels[r.Kernel]
		if k == nil {
			continue // a name that is declared twice
		}
		k.offered = 0
		for _, f := range r.Forms {
			k.offered |= f
		}
		k.ordered = r.WaitsForBlocks
		if !k.short {
			k.reason, k.detail = r.Reason.String(), r.Detail
			k.made = k.offered
		}
	}
	v.assemble(m, out, source, min(room, maxImage))
	return v
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// applyRecords reads what is known about the kernels. Without an answer all is measured again.
func (v *variants) applyRecords(ctx context.Context, p *preemption) {
	if len(v.kernels) == 0 {
		return
	}
	keys := make([]cache.Key, 0, len(v.kernels))
	for _, k := range v.kernels {
		keys = append(keys, k.key)
	}
	known, err := p.opts.Memory.Recall(ctx, keys)
	if err != nil {
		return
	}
	byKey := make(map[cache.Key]*cache.Entry, len(known))
	for i := range known {
		byKey[known[i].Key] = &known[i]
	}
	for _, k := range v.kernels {
		e := byKey[k.key]
		if e == nil {
			continue
		}
		k.record = e.Record
		if p.opts.Forms == 0 && alwaysShort(e.Record, p.wanted().Latency) {
			k.short, k.reason, k.offered = true, reasonShort, e.Forms
		}
	}
}

// alwaysShort reports whether every measured grid of a kernel ended within a latency.
func alwaysShort(r tune.Record, latency time.Duration) bool {
	for i := range r.Classes {
		if !r.Classes[i].Short(latency) {
			return false
		}
	}
	return len(r.Classes) > 0
}

// allShort reports whether no kernel needs forms.
func (v *variants) allShort() bool {
	for _, k := range v.kernels {
		if !k.short {
			return false
		}
	}
	return true
}

// assemble makes the text to load: the module as it was written, so that the host's messages name
// its lines, followed by the forms. If the text is too long, it leaves forms out.
func (v *variants) assemble(m, out *ptx.Module, source []byte, room int) {
	for _, less := range []abi.PreemptForm{0, abi.PreemptPersistent, abi.PreemptPersistent | abi.PreemptCoarse, ^abi.PreemptForm(0)} {
		any := abi.PreemptForm(0)
		for _, k := range v.kernels {
			if k.made&less != 0 {
				k.made &^= less
				k.reason = reasonTooLong
			}
			any |= k.made
		}
		if any == 0 {
			return
		}
		text := v.text(m, out, source)
		if len(text) <= room {
			v.image = text
			return
		}
	}
}

// text returns the module with its forms.
func (v *variants) text(m, out *ptx.Module, source []byte) []byte {
	written := map[string]bool{}
	variables := 0 // how many more out has
	for _, it := range m.Items {
		switch it := it.(type) {
		case *ptx.Func:
			written[it.Name] = true
		case *ptx.Var:
			variables--
		}
	}
	unwanted := map[string]bool{}
	for name, k := range v.kernels {
		for _, f := range []abi.PreemptForm{abi.PreemptSingle, abi.PreemptCoarse, abi.PreemptPersistent} {
			unwanted[preempt.EntryName(name, f)] = k.made&f == 0
		}
	}
	all, added := *out, *out
	all.Items, added.Items = nil, nil
	for _, it := range out.Items {
		f, ok := it.(*ptx.Func)
		if ok && f.Entry && unwanted[f.Name] && !written[f.Name] {
			continue
		}
		all.Items = append(all.Items, it)
		if _, ok := it.(*ptx.Var); ok {
			variables++
		}
		if ok && !written[f.Name] {
			added.Items = append(added.Items, it)
		}
	}
	if variables > 0 {
		return []byte(all.String()) // some of the module's own functions differ, too
	}
	head := added
	head.Items = nil
	behind, ok := strings.CutPrefix(added.String(), head.String())
	if !ok || head.String() != (&ptx.Module{Version: m.Version, Target: m.Target, AddressSize: m.AddressSize}).String() {
		return []byte(all.String()) // the forms need another header
	}
	text := make([]byte, 0, len(source)+1+len(behind))
	text = append(text, source...)
	text = append(text, '\n')
	return append(text, behind...)
}

// hashKernels returns a hash of each kernel, which covers its text and everything in the module
// that is not a kernel.
func hashKernels(m *ptx.Module) map[string]cache.Hash {
	one := ptx.Module{Version: m.Version, Target: m.Target, AddressSize: m.AddressSize}
	var kernels []*ptx.Func
	for _, it := range m.Items {
		if f, ok := it.(*ptx.Func); ok && f.Entry {
			kernels = append(kernels, f)
		} else {
			one.Items = append(one.Items, it)
		}
	}
	rest := sha256.Sum256([]byte(one.String()))
	hashes := make(map[string]cache.Hash, len(kernels))
	for _, f := range kernels {
		one.Items = []ptx.Item{f}
		h := sha256.New()
		h.Write(rest[:])
		h.Write([]byte(one.String()))
		hashes[f.Name] = cache.Hash(h.Sum(nil))
	}
	return hashes
}
