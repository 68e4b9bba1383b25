package domain

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"vgpud/mediator/api"
)

// Define gives a domain these virtual GPUs, in place of those that it has, for a
// daemon that has its sockets in runDir: our element in the metadata, memory that
// is shared, the QEMU arguments of the devices, and a spare port to plug one more
// into while the guest runs. All else stays as it is, byte for byte.
//
// An error says what of the domain is in the way; those about its XML are of
// type [*Error].
func Define(src []byte, devices Devices, runDir string) ([]byte, error) {
	if err := devices.Check(); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(runDir) || filepath.Clean(runDir) != runDir {
		return nil, fmt.Errorf("the daemon's directory %s: want an absolute path without detours", show(runDir))
	}
	bare, err := Undefine(src)
	if err != nil {
		return nil, err
	}
	d, err := parseDomain(bare)
	if err != nil {
		return nil, err
	}
	w := writer{document: d, layout: d.layout()}
	if err := w.write(devices, runDir); err != nil {
		return nil, err
	}
	return apply(bare, w.edits), nil
}

// writer puts things into a domain that has nothing of ours.
type writer struct {
	*document
	layout
	edits []edit
	added []string
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
		return err // what Parse would not read
	}
	lacks, err := w.memoryLacks()
	if err != nil {
		return err
	}
	args, err := w.newArguments(devices, runDir, uuid)
	if err != nil {
		return err
	}
	w.shareMemory(lacks)
	w.addArguments(args)
	w.addDevices(devices) // last: it says what was added
	return nil
}

// supported says why a domain can't have a device on its root PCI Express bus.
func (w *writer) supported() error {
	if t := w.root.attr("type"); t != "kvm" && t != "qemu" {
		return w.attrErrorf(w.root, "type", `%s: a virtual GPU is for domains of "kvm" or "qemu"`, show(t))
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
		return w.attrErrorf(at, "machine", `%s has no PCI Express that a virtual GPU could be plugged into: want "q35"`, show(machine))
	}
}

// maxSocket is how long a socket's path can be.
const maxSocket = 107

// newArguments are the QEMU arguments of the devices and the spare port.
func (w *writer) newArguments(devices Devices, runDir, uuid string) ([]string, error) {
	for _, o := range w.deviceOptions() {
		if ourID().MatchString(o.device.id) || o.device.id == spareID {
			return nil, w.errorf(o.value, "a device of another kind has the id %s already: give it another", plain(o.device.id))
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
			return nil, fmt.Errorf("the socket's path %s would have %d bytes, of at most %d: give the daemon a shorter run_dir", show(path), len(path), maxSocket)
		}
		args = append(args, "-device", gpuArgument(n, slots[n], path))
		reserve = max(reserve, 2*devices[n].Bar2())
	}
	return append(args, "-device", spareArgument(slots[len(devices)], reserve)), nil
}

// shareMemory has the guest's memory be shared.
func (w *writer) shareMemory(lacks sharing) {
	var items []string
	if lacks.source {
		items = append(items, "<source type='memfd'/>")
		w.added = append(w.added, addedSource)
	}
	if lacks.access {
		items = append(items, "<access mode='shared'/>")
		w.added = append(w.added, addedAccess)
	}
	if len(items) == 0 {
		return
	}
	backing := w.root.child("memoryBacking")
	w.note(backing, addedMemoryBacking, openedBacking)
	w.put(backing, w.last("maxMemory", "memory", "currentMemory", "blkiotune", "memtune"), "memoryBacking", items)
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
	w.note(commandLine, addedCommandLine, openedCommandLine)
	w.put(commandLine, w.last(), prefix+"commandline", items)
}

// qemuPrefix is the prefix of QEMU's namespace on <domain>, which gets one if it
// has none.
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

// addDevices writes our element.
func (w *writer) addDevices(devices Devices) {
	metadata := w.root.child("metadata")
	w.note(metadata, addedMetadata, openedMetadata)
	slices.SortFunc(w.added, func(a, b string) int { return slices.Index(additions, a) - slices.Index(additions, b) })
	var b strings.Builder
	fmt.Fprintf(&b, `<%s:%s xmlns:%s="%s"`, ourPrefix, devicesName, ourPrefix, Namespace)
	if len(w.added) > 0 {
		fmt.Fprintf(&b, ` %s="%s"`, addedAttr, strings.Join(w.added, " "))
	}
	b.WriteString(">")
	for i := range devices {
		b.WriteString(w.begin(3) + devices[i].element())
	}
	fmt.Fprintf(&b, "%s</%s:%s>", w.begin(2), ourPrefix, devicesName)
	w.put(metadata, w.last("name", "uuid", "genid", "title", "description"), "metadata", []string{b.String()})
}

// last is the last of the domain's children of these names, or of all.
func (w *writer) last(names ...string) *element {
	cs := w.root.children
	for i := len(cs) - 1; i >= 0; i-- {
		if cs[i].name.Space == "" && slices.Contains(names, cs[i].name.Local) {
			return cs[i]
		}
	}
	return cs[len(cs)-1]
}

// put writes items into a child of the domain: into e, or, where that is nil,
// into a new one after another child. Whatever is written begins right behind a
// tag, so that the space before it is known to be its own.
func (w *writer) put(e, after *element, name string, items []string) {
	var inner strings.Builder
	for _, item := range items {
		inner.WriteString(w.begin(2) + item)
	}
	switch {
	case e == nil:
		text := w.begin(1) + "<" + name + ">" + inner.String() + w.begin(1) + "</" + name + ">"
		w.edits = append(w.edits, edit{span{after.close.to, after.close.to}, text})
	case e.closesItself():
		text := ">" + inner.String() + w.begin(1) + "</" + w.tag(e) + ">"
		w.edits = append(w.edits, edit{span{e.open.to - len("/>"), e.open.to}, text})
	default:
		at := e.open.to
		if n := len(e.children); n > 0 {
			at = e.children[n-1].close.to
		}
		w.edits = append(w.edits, edit{span{at, at}, inner.String()})
	}
}

// note keeps in mind what put is about to do with an element: to make it, or to
// open it.
func (w *writer) note(e *element, made, opened string) {
	switch {
	case e == nil:
		w.added = append(w.added, made)
	case e.closesItself():
		w.added = append(w.added, opened)
	}
}

// Spec asks the daemon for virtual GPU number n of the domain, by that name.
func (v *Domain) Spec(n int, name string) api.VMSpec {
	g := &v.GPUs[n]
	s := api.VMSpec{
		Name: name, Domain: v.Name, DomainUUID: v.UUID, GPU: g.GPU,
		Weight: g.Weight, Cap: g.Cap, Guarantee: g.Guarantee, PriorityCeiling: g.PriorityCeiling,
		BAR2Bytes: g.BAR2, MemoryLimitBytes: g.Memory, KernelTimeLimit: g.KernelTimeLimit,
	}
	for _, dev := range v.Devices {
		if dev.Number == n {
			s.Socket = dev.Socket
		}
	}
	return s
}
