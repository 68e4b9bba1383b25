package domain

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"vgpud/mediator/api"
)

// Domain is what of a libvirt domain matters here.
type Domain struct {
	Name string
	// UUID is in lower case; empty where libvirt has not given it one yet.
	UUID string
	// Type is the hypervisor, kvm or qemu, and Machine as QEMU names it.
	Type, Machine string
	// Owner is the user that its QEMU runs as, where the domain says so.
	Owner *Owner
	// SharedMemory is whether other processes can be given the guest's memory.
	SharedMemory bool
	// GPUs are what the metadata asks for; none: the domain has nothing of ours.
	GPUs Devices
	// Devices are the virtual GPUs on the QEMU command line, in its order, and
	// Spare whether the port for plugging into is there.
	Devices []Device
	Spare   bool

	spareSlot int            // on pcie.0; -1: elsewhere, or not said
	taken     map[int]string // slots of pcie.0 that other devices have
}

// Owner is a user and a group, each a name or a number, as libvirt's labels
// have them: a number may have a plus sign before it.
type Owner struct{ User, Group string }

// Concerns is whether a document can have anything of ours: in its metadata, or
// on its QEMU command line. It looks at bytes alone, so that domains without
// virtual GPUs are none of our business whatever their XML is like.
func Concerns(src []byte) bool {
	return bytes.Contains(src, []byte(namespaces)) || bytes.Contains(src, []byte("xmlns:"+ourPrefix)) || bytes.Contains(src, []byte("/gpu0.sock"))
}

// Identity is a domain's name and UUID, whatever else is in it.
func Identity(src []byte) (name, uuid string, err error) {
	d, err := parseDomain(src)
	if err != nil {
		return "", "", err
	}
	uuid, err = d.uuid()
	return d.root.child("name").value(), uuid, err
}

// Parse reads a domain. Errors are of type [*Error]: the document is no domain,
// or our element in its metadata is not as it should be. Whether QEMU's command
// line has what the metadata asks for is for [Domain.Check] to say.
func Parse(src []byte) (*Domain, error) {
	d, err := parseDomain(src)
	if err != nil {
		return nil, err
	}
	v := &Domain{
		Name: d.root.child("name").value(), Type: d.root.attr("type"), Machine: d.machine(),
		SharedMemory: d.memoryShared(), spareSlot: -1, taken: d.usedSlots(),
	}
	if v.UUID, err = d.uuid(); err != nil {
		return nil, err
	}
	if v.Owner, err = d.owner(); err != nil {
		return nil, err
	}
	if v.GPUs, err = d.devices(); err != nil {
		return nil, err
	}
	for _, o := range d.deviceOptions() {
		if g, ok := o.device.gpu(); ok {
			v.Devices = append(v.Devices, g)
		}
		if o.device.spare() {
			v.Spare, v.spareSlot = true, o.device.slot
		}
	}
	return v, nil
}

// parseDomain reads a document that is a domain's and has a name.
func parseDomain(src []byte) (*document, error) {
	d, err := parseDocument(src)
	if err != nil {
		return nil, err
	}
	if !d.root.is("", "domain") {
		return nil, d.errorf(d.root, "want <domain>")
	}
	name := d.root.child("name")
	if name == nil {
		return nil, d.errorf(d.root, "no <name> in it")
	}
	if v := name.value(); v == "" || api.CheckDomain(v) != nil || strings.Contains(v, "/") {
		return nil, d.errorf(name, "%s: want a domain's name", show(v))
	}
	return d, nil
}

// uuid is the domain's, in lower case.
func (d *document) uuid() (string, error) {
	e := d.root.child("uuid")
	if e == nil {
		return "", nil
	}
	uuid := strings.ToLower(e.value())
	if api.CheckUUID(uuid) != nil {
		return "", d.errorf(e, "%s: want 8-4-4-4-12 hexadecimal digits", show(e.value()))
	}
	return uuid, nil
}

// machine is the machine's type.
func (d *document) machine() string {
	if os := d.root.child("os"); os != nil && os.child("type") != nil {
		return os.child("type").attr("machine")
	}
	return ""
}

var ownerPart = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\+?[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\$?$`)
})

// owner is the user of the domain's label of the kind "dac", which is that of
// its QEMU.
func (d *document) owner() (*Owner, error) {
	for _, e := range d.root.children {
		label := e.child("label")
		if !e.is("", "seclabel") || e.attr("model") != "dac" || label == nil {
			continue
		}
		user, group, ok := strings.Cut(label.value(), ":")
		if !ok || !ownerPart().MatchString(user) || !ownerPart().MatchString(group) {
			return nil, d.errorf(label, "%s: want USER:GROUP, names or numbers", show(label.value()))
		}
		return &Owner{user, group}, nil
	}
	return nil, nil
}

// Check says why the domain can't start with its virtual GPUs: its QEMU command
// line does not have the devices that its metadata asks for, or has them where
// there is something else. The error is on one line, and wraps [ErrMismatch].
func (v *Domain) Check() error {
	if v.UUID == "" {
		return fmt.Errorf("it has no <uuid>: %w", ErrMismatch)
	}
	slots := make(map[int]string)
	for slot, by := range v.taken {
		slots[slot] = by
	}
	if by := slots[v.spareSlot]; by != "" {
		return fmt.Errorf("%s is at slot %s of pcie.0, where %s is: %w", spareID, slotText(v.spareSlot), by, ErrMismatch)
	}
	slots[v.spareSlot] = spareID
	seen := make(map[int]bool)
	for _, dev := range v.Devices {
		id := fmt.Sprintf("vgpu%d", dev.Number)
		switch {
		case seen[dev.Number]:
			return fmt.Errorf("the QEMU command line has %s twice: %w", id, ErrMismatch)
		case dev.Number >= len(v.GPUs):
			return fmt.Errorf("the QEMU command line has %s, while the metadata asks for %d virtual GPUs: %w", id, len(v.GPUs), ErrMismatch)
		case dev.UUID != v.UUID:
			return fmt.Errorf("the QEMU command line connects %s for the domain with UUID %s, while this one's is %s (is it a copy?): %w", id, dev.UUID, v.UUID, ErrMismatch)
		case dev.Slot >= 0 && slots[dev.Slot] != "":
			return fmt.Errorf("%s is at slot %s of pcie.0, where %s is: %w", id, slotText(dev.Slot), slots[dev.Slot], ErrMismatch)
		}
		seen[dev.Number], slots[dev.Slot] = true, id
	}
	for n := range v.GPUs {
		if !seen[n] {
			return fmt.Errorf("the metadata asks for %d virtual GPUs, but the QEMU command line has no vgpu%d: %w", len(v.GPUs), n, ErrMismatch)
		}
	}
	return nil
}
