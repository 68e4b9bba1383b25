package qmp

import (
	"fmt"
	"net"

	"github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"

	"vgpud/internal/qmpconn"
)

// domain is the monitor of a libvirt domain's QEMU.
type domain struct {
	libvirt *libvirt.Libvirt
	name    string
	found   libvirt.Domain // after Connect
}

func newDomain(name string, conn net.Conn) *domain {
	return &domain{libvirt: libvirt.NewWithDialer(dialers.NewAlreadyConnected(conn)), name: name}
}

// Connect looks up the domain, which must run.
func (d *domain) Connect() (err error) {
	if err := d.libvirt.Connect(); err != nil {
		return err
	}
	if d.found, err = d.libvirt.DomainLookupByName(d.name); err != nil {
		return err
	}
	if d.found.ID < 0 {
		return fmt.Errorf("domain %q is not running", d.name)
	}
	return nil
}

// Run runs a QEMU command.
func (d *domain) Run(command string, args, result any) error {
	request, err := qmpconn.Encode(command, args)
	if err != nil {
		return err
	}
	answer, err := d.libvirt.QEMUDomainMonitorCommand(d.found, string(request), 0)
	if err != nil {
		return err
	}
	return qmpconn.Decode([]byte(answer), result)
}

// identity returns libvirt's description of the domain.
func (d *domain) identity() Identity {
	u := d.found.UUID
	return Identity{Name: d.found.Name, UUID: fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:])}
}
