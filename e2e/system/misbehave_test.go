package system

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// A guest, or a VMM, that misbehaves is a process of its own, this test's binary
// again, so that it can be killed in the middle of what it does.
const (
	modeVariable   = "VGPUD_SYSTEM_TEST_MODE"
	socketVariable = "VGPUD_SYSTEM_TEST_SOCKET"
	// atIt is the line that says that the mischief is under way.
	atIt = "at it"
)

// A foothold is what a guest that misbehaves has to do it with.
type foothold struct {
	client *vfiouser.Client
	bus    driver.Bus
	gpu    *driver.Context
	// begun is called when it has done its worst at least once.
	begun func()
}

// mischief are the ways in which a guest misbehaves. Each ends when it is killed.
var mischief = map[string]func(ctx context.Context, f *foothold) error{
	"endless kernel": func(ctx context.Context, f *foothold) error {
		p, err := launchEndless(ctx, f.gpu)
		if err != nil {
			return err
		}
		f.begun()
		return p.Wait(ctx)
	},
	"allocates without end": func(ctx context.Context, f *foothold) error {
		refused := 0
		for size := uint64(64 << 20); ; {
			if _, err := f.gpu.Alloc(ctx, size); err == nil {
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
	"floods doorbells": func(_ context.Context, f *foothold) error {
		for i := 0; ; i++ {
			if err := f.bus.Doorbell(uint32(abi.Doorbell(i % abi.MaxChannels))); err != nil {
				return err
			}
			if i == 100_000 {
				f.begun()
			}
		}
	},
	"makes contexts without end": func(ctx context.Context, f *foothold) error {
		var err error
		for err == nil {
			_, err = f.gpu.Device().NewContext(ctx, driver.ContextOptions{})
		}
		f.begun()
		<-ctx.Done()
		return err
	},
	"writes garbage to registers": func(_ context.Context, f *foothold) error {
		r := rand.New(rand.NewPCG(1, 2))
		for i := 0; ; i++ {
			if err := f.bus.Write(4*uint32(r.IntN(abi.BAR0Size/4)), garbage(r)); err != nil {
				return err
			}
			if i == 20_000 {
				f.begun()
			}
		}
	},
	"writes garbage to rings": func(_ context.Context, f *foothold) error {
		r := rand.New(rand.NewPCG(3, 4))
		shared := f.bus.Shared()
		for i := 0; ; i++ {
			// The rings are near the start of what both sides share.
			at := 4 * r.IntN(min(len(shared), 1<<20)/4)
			abi.StoreWord(shared, at, garbage(r))
			if err := f.bus.Doorbell(uint32(abi.Doorbell(r.IntN(4)))); err != nil {
				return err
			}
			if i == 100_000 {
				f.begun()
			}
		}
	},
}

// garbage is a number as likely to be small or nearly right as to be anything.
func garbage(r *rand.Rand) uint32 {
	switch r.IntN(3) {
	case 0:
		return uint32(r.IntN(8))
	case 1:
		return 1 << r.IntN(32)
	}
	return r.Uint32()
}

// launchEndless launches a kernel that never ends.
func launchEndless(ctx context.Context, gpu *driver.Context) (*driver.Pending, error) {
	m, err := gpu.LoadModule(ctx, []byte(misdeeds))
	if err != nil {
		return nil, err
	}
	f, err := m.Function(ctx, "endless")
	if err != nil {
		return nil, err
	}
	return gpu.Own().Launch(ctx, f, one, one, 0)
}

// attachGuest attaches as a guest does.
func attachGuest(ctx context.Context, socket string) (*foothold, error) {
	client, err := vfiouser.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	f := &foothold{client: client}
	if f.bus, err = driver.NewVFIOUserBus(client); err != nil {
		return nil, err
	}
	dev, err := driver.Open(ctx, f.bus)
	if err != nil {
		return nil, err
	}
	if f.gpu, err = dev.NewContext(ctx, driver.ContextOptions{}); err != nil {
		return nil, err
	}
	return f, nil
}

// misbehave is the guest's process: it does what it is told.
func misbehave(mode, socket string) int {
	do := func() error {
		ctx := context.Background()
		begun := func() { fmt.Println(atIt) }
		if vmm := vmmMischief[mode]; vmm != nil {
			return vmm(ctx, socket, begun)
		}
		f, err := attachGuest(ctx, socket)
		if err != nil {
			return err
		}
		f.begun = begun
		if do := deviceMischief[mode]; do != nil {
			return do(ctx, f)
		}
		return mischief[mode](ctx, f)
	}
	fmt.Println("ended:", do())
	return 1
}

// A culprit is a guest's process that misbehaves.
type culprit struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines io.ReadCloser
	ended bool
}

// newCulprit starts a process that attaches to a virtual GPU, and waits until it
// has done its worst.
func newCulprit(t *testing.T, mode, socket string) *culprit {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &culprit{t: t, cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), modeVariable+"="+mode, socketVariable+"="+socket)
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if c.lines, err = c.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	line, err := bufio.NewReader(c.lines).ReadString('\n')
	if line != atIt+"\n" {
		t.Fatalf("guest that %q said %q, %v", mode, line, err)
	}
	return c
}

// kill ends it without warning.
func (c *culprit) kill() {
	c.t.Helper()
	if c.ended {
		return
	}
	c.ended = true
	if err := c.cmd.Process.Kill(); err != nil {
		c.t.Error(err)
	}
	if err := c.cmd.Wait(); err == nil {
		c.t.Error("a guest that was killed ended by itself")
	}
}
