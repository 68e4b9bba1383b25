package libvirt

import (
	"context"
	"errors"
)

// DefaultURI is the host's own QEMU driver.
const DefaultURI = "qemu:///system"

var (
	// ErrUnavailable is wrapped where there is no libvirt to be had: the program,
	// its library, or cgo when it was built.
	ErrUnavailable = errors.New("libvirt is not to be had here")
	// ErrNoDomain is wrapped where libvirt knows no such domain.
	ErrNoDomain = errors.New("no such domain")
	// ErrClosed is wrapped where the connection to libvirt has ended.
	ErrClosed = errors.New("the connection to libvirt has ended")
)

// View is which of a domain's definitions is meant.
type View string

// The views.
const (
	Current    View = ""           // as it runs, or as it would
	Persistent View = "persistent" // as it will be when it is started next
)

// Domain is a domain as libvirt has it.
type Domain struct {
	Name   string `json:"name"`
	UUID   string `json:"uuid"`
	Active bool   `json:"active,omitempty"`
	// Persistent is whether it stays defined when it stops.
	Persistent bool `json:"persistent,omitempty"`
	// XML is left out of a [Hypervisor]'s list.
	XML string `json:"xml,omitempty"`
}

// Event says that something happened to a domain: it was defined, started,
// stopped, renamed or removed, or its metadata was changed.
type Event struct {
	UUID string `json:"uuid"`
	// Metadata is whether its metadata was changed, among other things perhaps.
	Metadata bool `json:"metadata,omitempty"`
}

// Hypervisor is a connection to libvirt by its library. Its calls may take as
// long as libvirt does.
type Hypervisor interface {
	// Domain finds a domain by UUID or name.
	Domain(key string, v View) (Domain, error)
	// Define makes a domain, or changes one from its next start on.
	Define(xml string) error
	Domains() ([]Domain, error)
	// Next waits for an event; it fails once the connection has ended.
	Next(ctx context.Context) (Event, error)
	Close() error
}
