package domain

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"vgpud/mediator/api"
)

// Instance is what vgpud uses of the domain of a Nova instance.
type Instance struct {
	Name string
	// UUID is the domain's, which is the instance's, in lower case.
	UUID string
	// Owner is the user that its QEMU runs as, if the domain gives it.
	Owner *Owner
	// Account names who pays for its usage.
	Account Account
	// Flavor is the name of the instance's flavor, as it can be shown.
	Flavor string
	// ExtraSpecs are the flavor's. They are nil if Nova does not tell them, which it does from a
	// release after 31.0 on.
	ExtraSpecs map[string]string
	// Defined reports whether the domain has something of vgpud's itself, as Nova never writes it.
	Defined bool
	// Emulator is the path of the program that libvirt starts.
	Emulator string

	document *document
}

// maxSpec bounds a name and a value of an extra spec, in bytes: Nova's own limit.
const maxSpec = 255

// IsInstance reports whether a document may be the domain of a Nova instance. It only searches the
// bytes.
func IsInstance(src []byte) bool { return bytes.Contains(src, []byte(novaNamespaces)) }

// ParseInstance reads the domain of a Nova instance; nil if it is none. Its errors are of type
// [*Error].
func ParseInstance(src []byte) (*Instance, error) {
	d, err := parseDomain(src)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(d.metadata(), func(e *element) bool {
		return strings.HasPrefix(e.name.Space, novaNamespaces) && e.name.Local == "instance"
	})
	if i < 0 {
		return nil, nil
	}
	nova := d.metadata()[i]
	v := &Instance{Name: d.root.child("name").value(), Account: d.account(), document: d}
	if v.UUID, err = d.uuid(); err != nil {
		return nil, err
	}
	if v.UUID == "" {
		return nil, d.errorf(d.root, "no <uuid> in it")
	}
	if v.Owner, err = d.owner(); err != nil {
		return nil, err
	}
	elements, err := d.devicesElements()
	if err != nil {
		return nil, err
	}
	v.Defined = len(elements) > 0
	for _, o := range d.deviceOptions() {
		_, gpu := o.device.gpu()
		v.Defined = v.Defined || gpu
	}
	for _, e := range nova.children {
		if e.is(nova.name.Space, "flavor") {
			v.Flavor = api.CleanText(e.attr("name"))
			v.ExtraSpecs = extraSpecs(e)
		}
	}
	if devices := d.root.child("devices"); devices != nil && devices.child("emulator") != nil {
		v.Emulator = devices.child("emulator").value()
	}
	return v, nil
}

// extraSpecs reads <nova:extraSpecs>.
func extraSpecs(flavor *element) map[string]string {
	var specs map[string]string
	for _, e := range flavor.children {
		if !e.is(flavor.name.Space, "extraSpecs") {
			continue
		}
		specs = make(map[string]string, len(e.children))
		for _, s := range e.children {
			name, value := s.attr("name"), s.value()
			if s.is(flavor.name.Space, "extraSpec") && len(name) <= maxSpec && len(value) <= maxSpec {
				specs[name] = value
			}
		}
	}
	return specs
}

// Arguments returns the arguments that give the instance's QEMU n virtual GPUs, for a daemon with
// its sockets in runDir. An error says what in the domain prevents this.
func (v *Instance) Arguments(n int, runDir string) ([]string, error) {
	w := writer{document: v.document}
	if err := w.supported(); err != nil {
		return nil, err
	}
	slots, err := w.freeSlots(n)
	if err != nil {
		return nil, err
	}
	var args []string
	for i := range n {
		path := SocketPath(runDir, v.UUID, i)
		if len(path) > maxSocket || filepath.Clean(runDir) != runDir {
			return nil, fmt.Errorf("the socket's path %s has %d bytes, of at most %d: give the daemon a shorter run_dir", quote(path), len(path), maxSocket)
		}
		args = append(args, "-device", gpuArgument(i, slots[i], path))
	}
	return args, nil
}
