package domain

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"vgpud/mediator/api"
)

// Domain is the part of a libvirt domain that vgpud uses.
type Domain struct {
	Name string
	// UUID is in lower case, and empty if libvirt has not assigned one yet.
	UUID string
	// Type is the hypervisor, kvm or qemu, and Machine is QEMU's name of the machine.
	Type, Machine string
	// Owner is the user that its QEMU runs as, if the domain gives it.
	Owner *Owner
	// Account names who pays for the domain's usage.
	Account Account
	// GPUs are the virtual GPUs that the metadata asks for; a domain without any has nothing of
	// vgpud's.
	GPUs Devices
	// Devices are the virtual GPUs on the QEMU command line, in its order, and Spare reports
	// whether the port for plugging is there.
	Devices []Device
	Spare   bool

	spareSlot int            // on pcie.0; -1: elsewhere or unknown
	taken     map[int]string // slots of pcie.0 with other devices
}

// Owner is a user and a group, each a name or a number, as in libvirt's labels: a number may have a
// plus sign before it.
type Owner struct{ User, Group string }

// Concerns reports whether a document may have something of vgpud's, in its metadata or on its QEMU
// command line. It only searches the bytes, so domains without virtual GPUs are let through
// whatever their XML.
func Concerns(src []byte) bool {
	return bytes.Contains(src, []byte(namespaces)) || bytes.Contains(src, []byte("xmlns:"+vgpudPrefix)) || bytes.Contains(src, []byte("/gpu0.sock"))
}

// Identity returns a domain's name and UUID, whatever else is in it.
func Identity(src []byte) (name, uuid string, err error) {
	d, err := parseDomain(src)
	if err != nil {
		return "", "", err
	}
	uuid, err = d.uuid()
	return d.root.child("name").value(), uuid, err
}

// Parse reads a domain. Its errors are of type [*Error]: the document is no domain, or vgpud's
// element in its metadata is invalid. [Domain.Check] checks whether QEMU's command line matches the
// metadata.
func Parse(src []byte) (*Domain, error) {
	d, err := parseDomain(src)
	if err != nil {
		return nil, err
	}
	v := &Domain{
		Name: d.root.child("name").value(), Type: d.root.attr("type"), Machine: d.machine(),
		Account: d.account(), spareSlot: -1, taken: d.usedSlots(),
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

// parseDomain reads a document that is a domain and has a name.
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
		return nil, d.errorf(name, "%s: want a domain's name", quote(v))
	}
	return d, nil
}

// uuid returns the domain's UUID, in lower case.
func (d *document) uuid() (string, error) {
	e := d.root.child("uuid")
	if e == nil {
		return "", nil
	}
	uuid := strings.ToLower(e.value())
	if api.CheckUUID(uuid) != nil {
		return "", d.errorf(e, "%s: want 8-4-4-4-12 hexadecimal digits", quote(e.value()))
	}
	return uuid, nil
}

// machine returns the machine type.
func (d *document) machine() string {
	if os := d.root.child("os"); os != nil && os.child("type") != nil {
		return os.child("type").attr("machine")
	}
	return ""
}

var ownerPart = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\+?[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\$?$`)
})

// owner returns the user of the domain's label of the kind "dac", which is QEMU's.
func (d *document) owner() (*Owner, error) {
	for _, e := range d.root.children {
		label := e.child("label")
		if !e.is("", "seclabel") || e.attr("model") != "dac" || label == nil {
			continue
		}
		user, group, ok := strings.Cut(label.value(), ":")
		if !ok || !ownerPart().MatchString(user) || !ownerPart().MatchString(group) {
			return nil, d.errorf(label, "%s: want USER:GROUP, names or numbers", quote(label.value()))
		}
		return &Owner{user, group}, nil
	}
	return nil, nil
}

// Check returns an error if the domain can't start with its virtual GPUs: its QEMU command line
// lacks devices that its metadata asks for, or has them in slots of other devices. The error is on
// one line, and wraps [ErrMismatch].
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
			return fmt.Errorf("the QEMU command line has %s, but the metadata asks for %d virtual GPUs: %w", id, len(v.GPUs), ErrMismatch)
		case dev.UUID != v.UUID:
			return fmt.Errorf("the QEMU command line connects %s for the domain with UUID %s, but this domain's is %s (is it a copy?): %w", id, dev.UUID, v.UUID, ErrMismatch)
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
