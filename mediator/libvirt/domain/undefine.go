package domain

import (
	"bytes"
	"slices"
	"strings"
)

// Undefine takes the virtual GPUs out of a domain: our element, our devices on
// the QEMU command line, and what else Define made and nobody uses now. All else
// stays as it is, byte for byte, so that it is the inverse of Define. A domain
// without anything of ours is returned unchanged.
//
// An element of ours that is malformed goes too, unless its version is not known.
func Undefine(src []byte) ([]byte, error) {
	d, err := parseDomain(src)
	if err != nil {
		return nil, err
	}
	devices, err := d.devicesElements()
	if err != nil {
		return nil, err
	}
	r := remover{document: d, gone: make(map[*element]bool)}
	for _, e := range devices {
		r.added = append(r.added, strings.Fields(e.attr(addedAttr))...)
	}
	for metadata, ours := range byParent(devices) {
		r.takeOut(metadata, ours, addedMetadata, openedMetadata)
	}
	r.takeMemory()
	r.takeArguments()
	r.takeNamespace()
	return apply(src, r.edits), nil
}

// remover takes things out of a domain.
type remover struct {
	*document
	added []string
	edits []edit
	gone  map[*element]bool
}

// has is whether Define added something.
func (r *remover) has(what string) bool { return slices.Contains(r.added, what) }

// byParent sorts elements by the one that they are in.
func byParent(elements []*element) map[*element][]*element {
	in := make(map[*element][]*element)
	for _, e := range elements {
		in[e.parent] = append(in[e.parent], e)
	}
	return in
}

// takeOut removes children of e, in their order, and e itself if Define made it
// and there is nothing else in it. One that Define opened closes itself again.
func (r *remover) takeOut(e *element, ours []*element, made, opened string) {
	if len(ours) == 0 {
		return
	}
	switch empty := r.nothingBut(e, ours); {
	case empty && r.has(made):
		r.remove(e)
	case empty && r.has(opened):
		r.edits = append(r.edits, edit{span{e.open.to - len(">"), e.close.to}, "/>"})
		for _, c := range ours {
			r.gone[c] = true
		}
	default:
		for _, c := range ours {
			r.remove(c)
		}
	}
}

// remove removes an element and the space before it, which begins its line.
func (r *remover) remove(e *element) {
	r.gone[e] = true
	where := e.whole()
	for isSpace(r.src[where.from-1]) {
		where.from--
	}
	r.edits = append(r.edits, edit{where, ""})
}

// nothingBut is whether an element has only these children, and space.
func (r *remover) nothingBut(e *element, children []*element) bool {
	at := e.open.to
	for _, c := range children {
		if len(bytes.TrimSpace(r.src[at:c.open.from])) > 0 {
			return false
		}
		at = c.close.to
	}
	return len(bytes.TrimSpace(r.src[at:e.close.from])) == 0
}

// takeMemory leaves the memory's backing as it was, where it still is as Define
// made it.
func (r *remover) takeMemory() {
	backing := r.root.child("memoryBacking")
	if backing == nil {
		return
	}
	var ours []*element
	if source := backing.child("source"); r.has(addedSource) && source != nil && source.attr("type") == "memfd" {
		ours = append(ours, source)
	}
	if access := backing.child("access"); r.has(addedAccess) && access != nil && access.attr("mode") == "shared" {
		ours = append(ours, access)
	}
	slices.SortFunc(ours, func(a, b *element) int { return a.open.from - b.open.from })
	r.takeOut(backing, ours, addedMemoryBacking, openedBacking)
}

// takeArguments removes our devices from the QEMU command line.
func (r *remover) takeArguments() {
	var ours []*element
	for _, o := range r.deviceOptions() {
		if o.device.ours() {
			ours = append(ours, o.flag, o.value)
		}
	}
	for commandLine, ours := range byParent(ours) {
		r.takeOut(commandLine, ours, addedCommandLine, openedCommandLine)
	}
}

// takeNamespace removes the declaration of QEMU's namespace from <domain>, where
// Define made it and it is not used any more.
func (r *remover) takeNamespace() {
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

// uses is whether an element or one in it that stays is written with a prefix.
func (r *remover) uses(e *element, prefix string) bool {
	if r.gone[e] {
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
