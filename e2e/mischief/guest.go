package mischief

import (
	"context"
	"math/rand/v2"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// Foothold is the access that a guest which misbehaves has.
type Foothold struct {
	Client *vfiouser.Client
	Bus    driver.Bus
	GPU    *driver.Context
	// begun is called when the guest has misbehaved at least once.
	begun func()
}

// guestMischief are the ways in which a guest misbehaves. Each ends when the process is killed.
var guestMischief = map[string]func(ctx context.Context, f *Foothold) error{
	"endless kernel": func(ctx context.Context, f *Foothold) error {
		p, err := LaunchEndless(ctx, f.GPU)
		if err != nil {
			return err
		}
		f.begun()
		return p.Wait(ctx)
	},
	"allocates without end": func(ctx context.Context, f *Foothold) error {
		refused := 0
		for size := uint64(64 << 20); ; {
			if _, err := f.GPU.Alloc(ctx, size); err == nil {
				continue
			}
			refused++
			if size > 4096 {
				size /= 2
			}
			if refused == 100 {
				f.begun()
			}
		}
	},
	"floods doorbells": func(_ context.Context, f *Foothold) error {
		for i := 0; ; i++ {
			if err := f.Bus.Doorbell(uint32(abi.Doorbell(i % abi.MaxChannels))); err != nil {
				return err
			}
			if i == 100_000 {
				f.begun()
			}
		}
	},
	"makes contexts without end": func(ctx context.Context, f *Foothold) error {
		var err error
		for err == nil {
			_, err = f.GPU.Device().NewContext(ctx, driver.ContextOptions{})
		}
		f.begun()
		<-ctx.Done()
		return err
	},
	"writes garbage to registers": func(_ context.Context, f *Foothold) error {
		r := rand.New(rand.NewPCG(1, 2))
		for i := 0; ; i++ {
			if err := f.Bus.Write(4*uint32(r.IntN(abi.BAR0Size/4)), garbage(r)); err != nil {
				return err
			}
			if i == 20_000 {
				f.begun()
			}
		}
	},
	"writes garbage to rings": func(_ context.Context, f *Foothold) error {
		r := rand.New(rand.NewPCG(3, 4))
		shared := f.Bus.Shared()
		for i := 0; ; i++ {
			// The rings are near the start of shared memory.
			at := 4 * r.IntN(min(len(shared), 1<<20)/4)
			abi.StoreWord(shared, at, garbage(r))
			if err := f.Bus.Doorbell(uint32(abi.Doorbell(r.IntN(4)))); err != nil {
				return err
			}
			if i == 100_000 {
				f.begun()
			}
		}
	},
}

// garbage returns a number that may be small, nearly right or arbitrary.
func garbage(r *rand.Rand) uint32 {
	switch r.IntN(3) {
	case 0:
		return uint32(r.IntN(8))
	case 1:
		return 1 << r.IntN(32)
	}
	return r.Uint32()
}

// LaunchEndless launches a kernel that never ends.
func LaunchEndless(ctx context.Context, gpu *driver.Context) (*driver.Pending, error) {
	f, err := endless(ctx, gpu)
	if err != nil {
		return nil, err
	}
	return gpu.Own().Launch(ctx, f, driver.Dim{X: 1}, driver.Dim{X: 1}, 0)
}

// RunEndlessEvent registers an event kernel that never ends, launches it, and waits until the context
// is ended. It returns the error of that.
func RunEndlessEvent(ctx context.Context, gpu *driver.Context) error {
	f, err := endless(ctx, gpu)
	if err != nil {
		return err
	}
	k, err := gpu.RegisterEventKernel(ctx, &driver.Launch{Function: f, Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 1}}, 1)
	if err != nil {
		return err
	}
	if k.Queue().Launch() {
		if err := gpu.Device().KickEvents(k.Number()); err != nil {
			return err
		}
	}
	return k.Close(ctx) // it waits for the event
}

func endless(ctx context.Context, gpu *driver.Context) (*driver.Function, error) {
	m, err := gpu.LoadModule(ctx, []byte(endlessPTX))
	if err != nil {
		return nil, err
	}
	return m.Function(ctx, "endless")
}

// Attach attaches as a guest does.
func Attach(ctx context.Context, socket string) (*Foothold, error) {
	client, err := vfiouser.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	f := &Foothold{Client: client}
	if f.Bus, err = driver.NewVFIOUserBus(client); err != nil {
		return nil, err
	}
	dev, err := driver.Open(ctx, f.Bus)
	if err != nil {
		return nil, err
	}
	if f.GPU, err = dev.NewContext(ctx, driver.ContextOptions{}); err != nil {
		return nil, err
	}
	return f, nil
}

// endlessPTX is a kernel that never ends.
const endlessPTX = `.version 7.8
.target sm_80
.address_size 64
.visible .entry endless()
{
L:
	bra L;
}
`
