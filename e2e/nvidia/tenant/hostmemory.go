package tenant

import (
	"context"
	"errors"

	"vgpud/guestagent/driver"
)

// hostCopier is a machine with host memory of its own, which its GPU can copy from and to directly.
type hostCopier interface {
	hostMemory(ctx context.Context) (h *hostMemory, release func(), err error)
}

// hostMemory stands for host memory of any length. It copies one small part again and again,
// because the guests of the measurements have little host memory.
type hostMemory struct {
	channel *driver.Channel
	mem     *driver.HostMemory
}

// hostPart is the size of the part, of the 64 MiB that these guests share with the host.
const hostPart = 16 << 20

func (g *guest) hostMemory(ctx context.Context) (*hostMemory, func(), error) {
	m, err := g.device.AllocHost(ctx, hostPart)
	if err != nil {
		return nil, nil, err
	}
	return &hostMemory{g.channel, m}, m.Free, nil
}

func (h *hostMemory) copyIn(ctx context.Context, dst uint64, src []byte) error {
	return h.each(ctx, len(src), func(at, n int) (*driver.Pending, error) {
		return h.channel.CopyInHost(ctx, driver.Ptr(dst)+driver.Ptr(at), h.mem, 0, n)
	})
}

func (h *hostMemory) copyOut(ctx context.Context, dst []byte, src uint64) error {
	return h.each(ctx, len(dst), func(at, n int) (*driver.Pending, error) {
		return h.channel.CopyOutHost(ctx, h.mem, 0, driver.Ptr(src)+driver.Ptr(at), n)
	})
}

// each starts the copies of all parts of the given length, and waits for them.
func (h *hostMemory) each(ctx context.Context, bytes int, part func(at, n int) (*driver.Pending, error)) error {
	var all []*driver.Pending
	for at := 0; at < bytes; at += hostPart {
		p, err := part(at, min(hostPart, bytes-at))
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	var errs error
	for _, p := range all {
		errs = errors.Join(errs, p.Wait(ctx))
	}
	return errs
}
