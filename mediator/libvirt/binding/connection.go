//go:build cgo && libvirt_dlopen

package binding

import (
	"context"
	"errors"
	"fmt"

	lv "libvirt.org/go/libvirt"

	"vgpud/mediator/api"
	"vgpud/mediator/libvirt"
)

// libvirt's daemon is taken for dead after keepAliveCount unanswered messages, keepAliveSeconds
// apart.
const (
	keepAliveSeconds = 5
	keepAliveCount   = 3
)

// connection implements [libvirt.Hypervisor].
type connection struct {
	conn      *lv.Connect
	callbacks []int
	events    *libvirt.EventQueue
}

// Open connects to libvirt and receives its events from then on.
func Open(uri string) (_ libvirt.Hypervisor, err error) {
	if err := startLoop(); err != nil {
		return nil, err
	}
	c := &connection{events: libvirt.NewEventQueue()}
	if c.conn, err = lv.NewConnect(uri); err != nil {
		return nil, explain(err)
	}
	if err := c.listen(); err != nil {
		return nil, errors.Join(explain(err), c.Close())
	}
	return c, nil
}

// listen registers for events. They arrive on the loop's goroutine, which must not block.
func (c *connection) listen() error {
	if err := c.conn.RegisterCloseCallback(func(_ *lv.Connect, reason lv.ConnectCloseReason) {
		c.events.Fail(fmt.Errorf("%w: %s", libvirt.ErrClosed, closeReasons[reason]))
	}); err != nil {
		return err
	}
	// Drivers inside this process, such as test:///, don't support it.
	if err := c.conn.SetKeepAlive(keepAliveSeconds, keepAliveCount); err != nil && !errors.Is(err, lv.ERR_NO_SUPPORT) {
		return err
	}
	id, err := c.conn.DomainEventLifecycleRegister(nil, func(_ *lv.Connect, d *lv.Domain, _ *lv.DomainEventLifecycle) { c.addEvent(d, false) })
	if err != nil {
		return err
	}
	c.callbacks = append(c.callbacks, id)
	id, err = c.conn.DomainEventMetadataChangeRegister(nil, func(_ *lv.Connect, d *lv.Domain, _ *lv.DomainEventMetadataChange) { c.addEvent(d, true) })
	if err != nil {
		return err
	}
	c.callbacks = append(c.callbacks, id)
	return nil
}

var closeReasons = map[lv.ConnectCloseReason]string{
	lv.CONNECT_CLOSE_REASON_ERROR:     "a transmission error",
	lv.CONNECT_CLOSE_REASON_EOF:       "its daemon closed it",
	lv.CONNECT_CLOSE_REASON_KEEPALIVE: "its daemon does not answer",
	lv.CONNECT_CLOSE_REASON_CLIENT:    "closed by this program",
}

func (c *connection) addEvent(d *lv.Domain, metadata bool) {
	uuid, err := d.GetUUIDString()
	if err != nil {
		return // can't happen: every domain has one
	}
	c.events.Add(libvirt.Event{UUID: uuid, Metadata: metadata})
}

// Next implements [libvirt.Hypervisor].
func (c *connection) Next(ctx context.Context) (libvirt.Event, error) { return c.events.Next(ctx) }

// Domain implements [libvirt.Hypervisor].
func (c *connection) Domain(key string, v libvirt.View) (_ libvirt.Domain, err error) {
	d, err := c.lookup(key)
	if err != nil {
		return libvirt.Domain{}, explain(err)
	}
	defer func() { err = errors.Join(err, d.Free()) }()
	s, err := state(d)
	if err != nil {
		return libvirt.Domain{}, explain(err)
	}
	// A domain that is defined again must keep its passwords.
	flags := lv.DOMAIN_XML_SECURE
	if v == libvirt.Persistent {
		flags |= lv.DOMAIN_XML_INACTIVE
	}
	if s.XML, err = d.GetXMLDesc(flags); err != nil {
		return libvirt.Domain{}, explain(err)
	}
	return s, nil
}

// lookup finds a domain. A name may look like a UUID.
func (c *connection) lookup(key string) (*lv.Domain, error) {
	if api.CheckUUID(key) == nil {
		if d, err := c.conn.LookupDomainByUUIDString(key); err == nil || !errors.Is(err, lv.ERR_NO_DOMAIN) {
			return d, err
		}
	}
	return c.conn.LookupDomainByName(key)
}

func state(d *lv.Domain) (s libvirt.Domain, err error) {
	if s.Name, err = d.GetName(); err != nil {
		return s, err
	}
	if s.UUID, err = d.GetUUIDString(); err != nil {
		return s, err
	}
	if s.Active, err = d.IsActive(); err != nil {
		return s, err
	}
	s.Persistent, err = d.IsPersistent()
	return s, err
}

// Define implements [libvirt.Hypervisor].
func (c *connection) Define(xml string) error {
	d, err := c.conn.DomainDefineXMLFlags(xml, 0)
	if err != nil {
		return explain(err)
	}
	return d.Free()
}

// Domains implements [libvirt.Hypervisor].
func (c *connection) Domains() ([]libvirt.Domain, error) {
	all, err := c.conn.ListAllDomains(0)
	if err != nil {
		return nil, explain(err)
	}
	domains := make([]libvirt.Domain, 0, len(all))
	for i := range all {
		s, serr := state(&all[i])
		switch {
		case serr == nil:
			domains = append(domains, s)
		case !errors.Is(serr, lv.ERR_NO_DOMAIN): // gone meanwhile
			err = errors.Join(err, explain(serr))
		}
		err = errors.Join(err, all[i].Free())
	}
	return domains, err
}

// Close implements [libvirt.Hypervisor].
func (c *connection) Close() error {
	var errs []error
	for _, id := range c.callbacks {
		errs = append(errs, c.conn.DomainEventDeregister(id))
	}
	errs = append(errs, c.conn.UnregisterCloseCallback())
	_, err := c.conn.Close()
	return errors.Join(append(errs, err)...)
}

// explain returns libvirt's error as text, without the numbers.
func explain(err error) error {
	e, ok := errors.AsType[lv.Error](err)
	if !ok {
		return err
	}
	switch {
	case e.Code == lv.ERR_NO_DOMAIN:
		return fmt.Errorf("%w: %s", libvirt.ErrNoDomain, e.Message)
	case e.Code == lv.ERR_INTERNAL_ERROR && e.Domain == lv.FROM_NONE:
		// The binding's own: the library can't be loaded, or lacks a function.
		return fmt.Errorf("libvirt's client library (Debian's package libvirt0): %s: %w", e.Message, libvirt.ErrUnavailable)
	default:
		return errors.New(e.Message)
	}
}
