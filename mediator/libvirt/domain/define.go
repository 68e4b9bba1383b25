package domain

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"vgpud/mediator/api"
)

// Define gives a domain these virtual GPUs, in place of those that it has, for a daemon with its
// sockets in runDir. It adds vgpud's element to the metadata, the devices' QEMU arguments,
// and a spare port for plugging one more into the running guest. Everything else stays
// as it is, byte for byte.
//
// An error says what in the domain prevents this; errors about its XML are of type [*Error].
func Define(src []byte, devices Devices, runDir string) ([]byte, error) {
	if err := devices.Check(); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(runDir) || filepath.Clean(runDir) != runDir {
		return nil, fmt.Errorf("the daemon's directory %s: want an absolute path without \".\" or \"..\"", quote(runDir))
	}
	had, err := parseDomain(src)
	if err != nil {
		return nil, err
	}
	bare, err := Undefine(src)
	if err != nil {
		return nil, err
	}
	d, err := parseDomain(bare)
	if err != nil {
		return nil, err
	}
	w := writer{document: d, layout: d.layout(), account: had.ownAccount()}
	if err := w.write(devices, runDir); err != nil {
		return nil, err
	}
	return apply(bare, w.edits), nil
}

// writer adds to a domain that has nothing of vgpud's.
type writer struct {
	*document
	layout
	edits []edit
	added []string
	// account stays as it was.
	account Account
}

func (w *writer) write(devices Devices, runDir string) error {
	uuid, err := w.uuid()
	if err != nil {
		return err
	}
	if uuid == "" {
		return w.errorf(w.root, "no <uuid> in it: libvirt gives a domain one when it is defined, so define it first")
	}
	if err := w.supported(); err != nil {
		return err
	}
	if _, err := w.owner(); err != nil {
		return err // Parse would refuse it
	}
	args, err := w.newArguments(devices, runDir, uuid)
	if err != nil {
		return err
	}
	w.addArguments(args)
	w.addDevices(devices) // last, because it lists the additions
	return nil
}

// supported returns an error if the domain can't have a device on its root PCI Express bus.
func (w *writer) supported() error {
	if t := w.root.attr("type"); t != "kvm" && t != "qemu" {
		return w.attrErrorf(w.root, "type", `%s: a virtual GPU is for domains of "kvm" or "qemu"`, quote(t))
	}
	at, machine := w.root, w.machine()
	if os := w.root.child("os"); os != nil && os.child("type") != nil {
		at = os.child("type")
	}
	switch {
	case strings.Contains(machine, "q35"), machine == "virt", strings.HasPrefix(machine, "virt-"):
		return nil
	case machine == "":
		return w.attrErrorf(at, "machine", `not given, and QEMU's default has no PCI Express: want "q35"`)
	default:
		return w.attrErrorf(at, "machine", `%s has no PCI Express that a virtual GPU could be plugged into: want "q35"`, quote(machine))
	}
}

// maxSocket bounds the length of a socket's path.
const maxSocket = 107

// newArguments returns the QEMU arguments of the devices and the spare port.
func (w *writer) newArguments(devices Devices, runDir, uuid string) ([]string, error) {
	for _, o := range w.deviceOptions() {
		if vgpuID().MatchString(o.device.id) || o.device.id == spareID {
			return nil, w.errorf(o.value, "a device of another kind has the id %s already: give it another", printable(o.device.id))
		}
	}
	slots, err := w.freeSlots(len(devices) + 1)
	if err != nil {
		return nil, err
	}
	var args []string
	var reserve uint64
	for n := range devices {
		path := SocketPath(runDir, uuid, n)
		if len(path) > maxSocket {
			return nil, fmt.Errorf("the socket's path %s would have %d bytes, of at most %d: give the daemon a shorter run_dir", quote(path), len(path), maxSocket)
		}
		args = append(args, "-device", gpuArgument(n, slots[n], path))
		reserve = max(reserve, 2*devices[n].Bar2())
	}
	return append(args, "-device", spareArgument(slots[len(devices)], reserve)), nil
}

// addArguments adds to the QEMU command line.
func (w *writer) addArguments(args []string) {
	var commandLine *element
	var prefix string
	if all := w.commandLines(); len(all) > 0 {
		commandLine = all[len(all)-1]
		prefix = w.prefix(commandLine)
	} else {
		prefix = w.qemuPrefix()
	}
	if prefix != "" {
		prefix += ":"
	}
	items := make([]string, len(args))
	for i, a := range args {
		items[i] = "<" + prefix + "arg value='" + escape(a) + "'/>"
	}
	w.recordAddition(commandLine, addedCommandLine, openedCommandLine)
	w.put(commandLine, w.last(), prefix+"commandline", items)
}

// qemuPrefix returns the prefix of QEMU's namespace on <domain>, and adds one if there is none.
func (w *writer) qemuPrefix() string {
	taken := make(map[string]bool)
	for _, a := range w.root.attrs {
		if a.Name.Space != "xmlns" {
			continue
		}
		if a.Value == qemuNamespace {
			return a.Name.Local
		}
		taken[a.Name.Local] = true
	}
	prefix := "qemu"
	for n := 0; taken[prefix]; n++ {
		prefix = "qemu" + strconv.Itoa(n)
	}
	end := w.root.open.from + 1 + len(w.tag(w.root))
	if n := len(w.root.attrs); n > 0 {
		end = w.attrSpan(w.root, n-1).to
	}
	w.edits = append(w.edits, edit{span{end, end}, " xmlns:" + prefix + "='" + qemuNamespace + "'"})
	w.added = append(w.added, addedXMLNS)
	return prefix
}

// addDevices adds vgpud's element.
func (w *writer) addDevices(devices Devices) {
	metadata := w.root.child("metadata")
	w.recordAddition(metadata, addedMetadata, openedMetadata)
	slices.SortFunc(w.added, func(a, b string) int { return slices.Index(additions, a) - slices.Index(additions, b) })
	var b strings.Builder
	fmt.Fprintf(&b, `<%s:%s xmlns:%s="%s"`, vgpudPrefix, devicesName, vgpudPrefix, Namespace)
	if len(w.added) > 0 {
		fmt.Fprintf(&b, ` %s="%s"`, addedAttr, strings.Join(w.added, " "))
	}
	b.WriteString(w.account.attributes() + ">")
	for i := range devices {
		b.WriteString(w.indent(3) + devices[i].element())
	}
	fmt.Fprintf(&b, "%s</%s:%s>", w.indent(2), vgpudPrefix, devicesName)
	w.put(metadata, w.last("name", "uuid", "genid", "title", "description"), "metadata", []string{b.String()})
}

// last returns the last of the domain's children with one of these names, or else the last of all.
func (w *writer) last(names ...string) *element {
	cs := w.root.children
	for i := len(cs) - 1; i >= 0; i-- {
		if cs[i].name.Space == "" && slices.Contains(names, cs[i].name.Local) {
			return cs[i]
		}
	}
	return cs[len(cs)-1]
}

// put writes items into a child of the domain: into e, or, if e is nil, into a new child after
// another. Each text starts directly after a tag, so that the space before an added element is
// known to be added too.
func (w *writer) put(e, after *element, name string, items []string) {
	var inner strings.Builder
	for _, item := range items {
		inner.WriteString(w.indent(2) + item)
	}
	switch {
	case e == nil:
		text := w.indent(1) + "<" + name + ">" + inner.String() + w.indent(1) + "</" + name + ">"
		w.edits = append(w.edits, edit{span{after.close.to, after.close.to}, text})
	case e.closesItself():
		text := ">" + inner.String() + w.indent(1) + "</" + w.tag(e) + ">"
		w.edits = append(w.edits, edit{span{e.open.to - len("/>"), e.open.to}, text})
	default:
		at := e.open.to
		if n := len(e.children); n > 0 {
			at = e.children[n-1].close.to
		}
		w.edits = append(w.edits, edit{span{at, at}, inner.String()})
	}
}

// recordAddition records what put is about to do with an element: make it or open it.
func (w *writer) recordAddition(e *element, made, opened string) {
	switch {
	case e == nil:
		w.added = append(w.added, made)
	case e.closesItself():
		w.added = append(w.added, opened)
	}
}

// Spec returns the request to the daemon for virtual GPU number n of the domain, by that name.
func (v *Domain) Spec(n int, name string) api.VMSpec {
	g := &v.GPUs[n]
	s := api.VMSpec{
		Name: name, Domain: v.Name, DomainUUID: v.UUID, Owner: v.Account.Owner, Project: v.Account.Project, GPU: g.GPU, Float: g.Float,
		Weight: g.Weight, Cap: g.Cap, Guarantee: g.Guarantee, PriorityCeiling: g.PriorityCeiling, Latency: g.Latency,
		BAR2Bytes: g.BAR2, MemoryLimitBytes: g.Memory, KernelTimeLimit: g.KernelTimeLimit, Budget: g.Budget,
	}
	for _, dev := range v.Devices {
		if dev.Number == n {
			s.Socket = dev.Socket
		}
	}
	return s
}
