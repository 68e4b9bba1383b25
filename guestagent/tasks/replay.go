package tasks

import (
	"context"
	"fmt"

	"vgpud/guestagent/driver"
)

// Replay makes what a record holds in a context that has nothing at the record's addresses, and waits
// until it is there. After an error the context has a part of it.
func Replay(ctx context.Context, gpu *driver.Context, r *Record) error {
	if err := checkAddresses(ctx, gpu, r); err != nil {
		return err
	}
	for _, g := range r.regions {
		if err := gpu.AllocAt(ctx, driver.Ptr(g.Base), g.Bytes); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	ch := gpu.Own()
	var sent []*driver.Pending
	for w := range r.Writes() {
		var p *driver.Pending
		var err error
		if w.Data != nil {
			p, err = ch.CopyIn(ctx, driver.Ptr(w.Address), w.Data)
		} else {
			p, err = ch.Set(ctx, driver.Ptr(w.Address), w.Value, 4, w.Words)
		}
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		sent = append(sent, p)
	}
	for _, p := range sent {
		if err := p.Wait(ctx); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	return nil
}

// checkAddresses returns an error if the context can't have the record's addresses.
func checkAddresses(ctx context.Context, gpu *driver.Context, r *Record) error {
	if len(r.regions) == 0 {
		return nil
	}
	a, err := gpu.AddressRange(ctx)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	if r.o.Grain%a.Grain != 0 || uint64(a.Base) > r.o.Base || r.o.Base+r.o.Bytes-uint64(a.Base) > a.Bytes {
		return fmt.Errorf("replay: the record's addresses begin at %#x, multiples of %d; those of this GPU at %#x, multiples of %d: %w",
			r.o.Base, r.o.Grain, uint64(a.Base), a.Grain, ErrAddresses)
	}
	return nil
}
