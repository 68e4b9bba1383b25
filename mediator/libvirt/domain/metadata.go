package domain

import (
	"bytes"
	"slices"
	"strings"
)

// addedAttr is <vgpud:devices>'s attribute that says what else of the domain
// Define has made, which is what Undefine is to take out. It is in the metadata
// since that is all that libvirt keeps as it is.
const addedAttr = "added"

// What Define makes, beside what is ours by its look. An opened element is one
// that closed itself before Define put something into it.
const (
	addedXMLNS         = "xmlns"
	addedMetadata      = "metadata"
	openedMetadata     = "metadata-content"
	addedMemoryBacking = "memoryBacking"
	openedBacking      = "memoryBacking-content"
	addedSource        = "source"
	addedAccess        = "access"
	addedCommandLine   = "commandline"
	openedCommandLine  = "commandline-content"
)

var additions = []string{
	addedXMLNS, addedMetadata, openedMetadata, addedMemoryBacking, openedBacking, addedSource, addedAccess, addedCommandLine, openedCommandLine,
}

// isOurs is whether an element is in our namespace, of any version, or means to be.
func (d *document) isOurs(e *element) bool {
	return strings.HasPrefix(e.name.Space, namespaces) || d.prefix(e) == ourPrefix
}

// devicesElements finds our elements in the metadata. One anywhere else is an
// error, and so is one of a version that is not known.
func (d *document) devicesElements() (found []*element, err error) {
	var look func(e *element, inMetadata bool) error
	look = func(e *element, inMetadata bool) error {
		switch {
		case !d.isOurs(e):
		case e.name.Space != Namespace:
			return d.errorf(e, "the namespace %s is not known: want %q", show(e.name.Space), Namespace)
		case !inMetadata:
			return d.errorf(e, "not in its place: want <%s:%s> directly in the domain's <metadata>", ourPrefix, devicesName)
		case e.name.Local != devicesName:
			return d.errorf(e, "not known in <metadata>: want <%s:%s>", ourPrefix, devicesName)
		default:
			found = append(found, e)
			return nil
		}
		for _, c := range e.children {
			if err := look(c, e.parent == d.root && e.is("", "metadata")); err != nil {
				return err
			}
		}
		return nil
	}
	return found, look(d.root, false)
}

// devices reads what the metadata asks for. Without our element, that is nothing.
func (d *document) devices() (Devices, error) {
	found, err := d.devicesElements()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if len(found) > 1 {
		return nil, d.errorf(found[1], "a second one (the first is on line %d): want all <%s:%s> in one", d.line(found[0].open.from), ourPrefix, gpuName)
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
					return nil, d.attrErrorf(e, addedAttr, "%s is not known: it is written by `vgpuctl define`, leave it as it was", show(s))
				}
			}
		default:
			return nil, d.attrErrorf(e, a.Name.Local, "not known: what a GPU is granted belongs on <%s:%s>", ourPrefix, gpuName)
		}
	}
	if len(bytes.TrimSpace(e.text)) > 0 {
		return nil, d.errorf(e, "text %s in it: want <%s:%s> only", show(string(bytes.TrimSpace(e.text))), ourPrefix, gpuName)
	}
	var ds Devices
	for _, c := range e.children {
		switch {
		case d.isOurs(c) && c.name.Space != Namespace:
			return nil, d.errorf(c, "the namespace %s is not known: want %q", show(c.name.Space), Namespace)
		case !c.is(Namespace, gpuName):
			return nil, d.errorf(c, "not known in <%s:%s>: want <%s:%s>", ourPrefix, devicesName, ourPrefix, gpuName)
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
		return nil, d.errorf(e, "empty: want at least one <%s:%s>", ourPrefix, gpuName)
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
	if err := g.agree(); err != nil {
		return g, d.errorf(e, "%v", err)
	}
	return g, nil
}

// isDeclaration is whether an attribute declares a namespace.
func isDeclaration(space, local string) bool {
	return space == "xmlns" || space == "" && local == "xmlns"
}

func attributeNames() string {
	names := Attributes()
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
