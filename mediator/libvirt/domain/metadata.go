package domain

import (
	"bytes"
	"slices"
	"strings"

	"vgpud/mediator/api"
)

// addedAttr is the attribute of <vgpud:devices> that says what else in the domain Define has added,
// for Undefine to remove. It is in the metadata because libvirt keeps only that as it is.
const addedAttr = "added"

// Additions of Define other than vgpud's own elements. An opened element is one that was written
// <a/> before Define put something into it.
const (
	addedXMLNS        = "xmlns"
	addedMetadata     = "metadata"
	openedMetadata    = "metadata-content"
	addedCommandLine  = "commandline"
	openedCommandLine = "commandline-content"
)

// Define added these when it still gave domains shared memory, which a virtual GPU does not need: it
// does no DMA.
const (
	addedMemoryBacking = "memoryBacking"
	openedBacking      = "memoryBacking-content"
	addedSource        = "source"
	addedAccess        = "access"
)

var additions = []string{
	addedXMLNS, addedMetadata, openedMetadata, addedMemoryBacking, openedBacking, addedSource, addedAccess, addedCommandLine, openedCommandLine,
}

// isVgpud reports whether an element is in vgpud's namespace, of any version, or has its prefix.
func (d *document) isVgpud(e *element) bool {
	return strings.HasPrefix(e.name.Space, namespaces) || d.prefix(e) == vgpudPrefix
}

// devicesElements returns vgpud's elements in the metadata. An element anywhere else, or of an
// unknown version, is an error.
func (d *document) devicesElements() (found []*element, err error) {
	var walk func(e *element, inMetadata bool) error
	walk = func(e *element, inMetadata bool) error {
		switch {
		case !d.isVgpud(e):
		case e.name.Space != Namespace:
			return d.errorf(e, "the namespace %s is not known: want %q", quote(e.name.Space), Namespace)
		case !inMetadata:
			return d.errorf(e, "wrong place: want <%s:%s> directly in the domain's <metadata>", vgpudPrefix, devicesName)
		case e.name.Local != devicesName:
			return d.errorf(e, "not known in <metadata>: want <%s:%s>", vgpudPrefix, devicesName)
		default:
			found = append(found, e)
			return nil
		}
		for _, c := range e.children {
			if err := walk(c, e.parent == d.root && e.is("", "metadata")); err != nil {
				return err
			}
		}
		return nil
	}
	return found, walk(d.root, false)
}

// devices reads the virtual GPUs that the metadata asks for.
func (d *document) devices() (Devices, error) {
	found, err := d.devicesElements()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if len(found) > 1 {
		return nil, d.errorf(found[1], "a second one (the first is on line %d): want all <%s:%s> in one", d.line(found[0].open.from), vgpudPrefix, gpuName)
	}
	return d.readDevices(found[0])
}

// readDevices reads <vgpud:devices>.
func (d *document) readDevices(e *element) (Devices, error) {
	for _, a := range e.attrs {
		switch {
		case isDeclaration(a.Name.Space, a.Name.Local):
		case a.Name.Space == "" && a.Name.Local == addedAttr:
			for _, s := range strings.Fields(a.Value) {
				if !slices.Contains(additions, s) {
					return nil, d.attrErrorf(e, addedAttr, "%s is not known: it is written by `vgpuctl define`, leave it as it was", quote(s))
				}
			}
		case a.Name.Space == "" && (a.Name.Local == ownerAttr || a.Name.Local == projectAttr):
			if a.Value != api.CleanText(a.Value) {
				return nil, d.attrErrorf(e, a.Name.Local, "%s: want at most %d bytes of text that prints on one line", quote(a.Value), api.MaxText)
			}
		default:
			return nil, d.attrErrorf(e, a.Name.Local, "not known: a GPU's settings belong on <%s:%s>", vgpudPrefix, gpuName)
		}
	}
	if len(bytes.TrimSpace(e.text)) > 0 {
		return nil, d.errorf(e, "text %s in it: want <%s:%s> only", quote(string(bytes.TrimSpace(e.text))), vgpudPrefix, gpuName)
	}
	var ds Devices
	for _, c := range e.children {
		switch {
		case d.isVgpud(c) && c.name.Space != Namespace:
			return nil, d.errorf(c, "the namespace %s is not known: want %q", quote(c.name.Space), Namespace)
		case !c.is(Namespace, gpuName):
			return nil, d.errorf(c, "not known in <%s:%s>: want <%s:%s>", vgpudPrefix, devicesName, vgpudPrefix, gpuName)
		case len(ds) == MaxGPUs:
			return nil, d.errorf(c, "more than %d virtual GPUs", MaxGPUs)
		}
		g, err := d.readGPU(c)
		if err != nil {
			return nil, err
		}
		ds = append(ds, g)
	}
	if len(ds) == 0 {
		return nil, d.errorf(e, "empty: want at least one <%s:%s>", vgpudPrefix, gpuName)
	}
	return ds, nil
}

// readGPU reads <vgpud:gpu>.
func (d *document) readGPU(e *element) (g GPU, err error) {
	if len(e.children) > 0 || len(bytes.TrimSpace(e.text)) > 0 {
		return g, d.errorf(e, "something in it: want it empty, with attributes")
	}
	for _, a := range e.attrs {
		if isDeclaration(a.Name.Space, a.Name.Local) {
			continue
		}
		i := slices.IndexFunc(attributes, func(known attribute) bool { return a.Name.Space == "" && known.name == a.Name.Local })
		if i < 0 {
			return g, d.attrErrorf(e, a.Name.Local, "not known: want %s", attributeNames())
		}
		if err := attributes[i].read(&g, a.Value); err != nil {
			return g, d.attrErrorf(e, a.Name.Local, "%v", err)
		}
	}
	if err := g.checkTerms(); err != nil {
		return g, d.errorf(e, "%v", err)
	}
	return g, nil
}

// isDeclaration reports whether an attribute declares a namespace.
func isDeclaration(space, local string) bool {
	return space == "xmlns" || space == "" && local == "xmlns"
}

func attributeNames() string {
	names := Attributes()
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
