package libvirt

import (
	"context"
	"errors"
)

// DefaultURI is the URI of the host's own QEMU driver.
const DefaultURI = "qemu:///system"

var (
	// ErrUnavailable means that libvirt can't be used here: the program or its library is missing,
	// or it was built without cgo.
	ErrUnavailable = errors.New("libvirt is not available here")
	// ErrNoDomain means that libvirt knows no such domain.
	ErrNoDomain = errors.New("no such domain")
	// ErrClosed means that the connection to libvirt has ended.
	ErrClosed = errors.New("the connection to libvirt has ended")
)

// View selects one of a domain's definitions.
type View string

// The views.
const (
	Current    View = ""           // of the running domain, or of its next start
	Persistent View = "persistent" // of its next start
)

// Domain is a domain as libvirt describes it.
type Domain struct {
	Name   string `json:"name"`
	UUID   string `json:"uuid"`
	Active bool   `json:"active,omitempty"`
	// Persistent reports whether it stays defined when it stops.
	Persistent bool `json:"persistent,omitempty"`
	// XML is empty in a [Hypervisor]'s list.
	XML string `json:"xml,omitempty"`
}

// Event says that a domain changed: it was defined, started, stopped, renamed or removed, or its
// metadata was changed.
type Event struct {
	UUID string `json:"uuid"`
	// Metadata reports whether its metadata was changed, perhaps among other things.
	Metadata bool `json:"metadata,omitempty"`
}

// Hypervisor is a connection to libvirt by its library. Its calls may take as long as libvirt does.
type Hypervisor interface {
	// Domain returns a domain, given by UUID or name.
	Domain(key string, v View) (Domain, error)
	// Define creates a domain, or changes one from its next start on.
	Define(xml string) error
	Domains() ([]Domain, error)
	// Next waits for an event. It fails once the connection has ended.
	Next(ctx context.Context) (Event, error)
	Close() error
}
