package domain

import (
	"bytes"
	"slices"
	"strings"
)

// Undefine removes the virtual GPUs from a domain: vgpud's element, its devices on the QEMU command
// line, and those other additions of Define that are not used any more. Everything else stays as it
// is, byte for byte, so it is the inverse of Define. A domain with nothing of vgpud's is returned
// unchanged.
//
// A malformed element of vgpud's is removed too, unless its version is unknown.
func Undefine(src []byte) ([]byte, error) {
	d, err := parseDomain(src)
	if err != nil {
		return nil, err
	}
	devices, err := d.devicesElements()
	if err != nil {
		return nil, err
	}
	r := remover{document: d, removed: make(map[*element]bool)}
	for _, e := range devices {
		r.added = append(r.added, strings.Fields(e.attr(addedAttr))...)
	}
	for metadata, elements := range byParent(devices) {
		r.removeChildren(metadata, elements, addedMetadata, openedMetadata)
	}
	r.removeMemory()
	r.removeArguments()
	r.removeNamespace()
	return apply(src, r.edits), nil
}

// remover removes things from a domain.
type remover struct {
	*document
	added   []string
	edits   []edit
	removed map[*element]bool
}

// has reports whether Define added something.
func (r *remover) has(what string) bool { return slices.Contains(r.added, what) }

// byParent groups elements by their parents.
func byParent(elements []*element) map[*element][]*element {
	in := make(map[*element][]*element)
	for _, e := range elements {
		in[e.parent] = append(in[e.parent], e)
	}
	return in
}

// removeChildren removes children of e, in order, and e itself if Define made it and nothing else
// is in it. If Define opened e, it becomes <e/> again.
func (r *remover) removeChildren(e *element, elements []*element, made, opened string) {
	if len(elements) == 0 {
		return
	}
	switch empty := r.containsOnly(e, elements); {
	case empty && r.has(made):
		r.remove(e)
	case empty && r.has(opened):
		r.edits = append(r.edits, edit{span{e.open.to - len(">"), e.close.to}, "/>"})
		for _, c := range elements {
			r.removed[c] = true
		}
	default:
		for _, c := range elements {
			r.remove(c)
		}
	}
}

// remove removes an element and the space before it, which starts its line.
func (r *remover) remove(e *element) {
	r.removed[e] = true
	where := e.extent()
	for isSpace(r.src[where.from-1]) {
		where.from--
	}
	r.edits = append(r.edits, edit{where, ""})
}

// containsOnly reports whether an element contains only these children, and space.
func (r *remover) containsOnly(e *element, children []*element) bool {
	at := e.open.to
	for _, c := range children {
		if len(bytes.TrimSpace(r.src[at:c.open.from])) > 0 {
			return false
		}
		at = c.close.to
	}
	return len(bytes.TrimSpace(r.src[at:e.close.from])) == 0
}

// removeMemory restores the memory backing, as far as it is still as Define made it when it still gave
// domains shared memory.
func (r *remover) removeMemory() {
	backing := r.root.child("memoryBacking")
	if backing == nil {
		return
	}
	var elements []*element
	if source := backing.child("source"); r.has(addedSource) && source != nil && source.attr("type") == "memfd" {
		elements = append(elements, source)
	}
	if access := backing.child("access"); r.has(addedAccess) && access != nil && access.attr("mode") == "shared" {
		elements = append(elements, access)
	}
	slices.SortFunc(elements, func(a, b *element) int { return a.open.from - b.open.from })
	r.removeChildren(backing, elements, addedMemoryBacking, openedBacking)
}

// removeArguments removes vgpud's devices from the QEMU command line.
func (r *remover) removeArguments() {
	var elements []*element
	for _, o := range r.deviceOptions() {
		if o.device.vgpud() {
			elements = append(elements, o.flag, o.value)
		}
	}
	for commandLine, elements := range byParent(elements) {
		r.removeChildren(commandLine, elements, addedCommandLine, openedCommandLine)
	}
}

// removeNamespace removes the declaration of QEMU's namespace from <domain>, if Define made it and
// it is not used any more.
func (r *remover) removeNamespace() {
	if !r.has(addedXMLNS) {
		return
	}
	for n, a := range r.root.attrs {
		if a.Name.Space == "xmlns" && a.Value == qemuNamespace && !r.uses(r.root, a.Name.Local) {
			r.edits = append(r.edits, edit{r.attrSpan(r.root, n), ""})
			return
		}
	}
}

// uses reports whether a remaining element at or below e is written with a prefix.
func (r *remover) uses(e *element, prefix string) bool {
	if r.removed[e] {
		return false
	}
	if r.prefix(e) == prefix || slices.ContainsFunc(e.children, func(c *element) bool { return r.uses(c, prefix) }) {
		return true
	}
	for _, a := range e.attrs {
		if a.Name.Space == qemuNamespace {
			return true
		}
	}
	return false
}
