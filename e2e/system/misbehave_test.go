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
)

// A guest that misbehaves is a process of its own, this test's binary again, so
// that it can be killed in the middle of what it does.
const (
	modeVariable   = "VGPUD_SYSTEM_TEST_MODE"
	socketVariable = "VGPUD_SYSTEM_TEST_SOCKET"
	// atIt is the line that says that the mischief is under way.
	atIt = "at it"
)

// mischief are the ways to misbehave. Each ends when it is killed, and calls
// begun once it has done its worst at least once.
var mischief = map[string]func(ctx context.Context, bus driver.Bus, gpu *driver.Context, begun func()) error{
	"endless kernel": func(ctx context.Context, _ driver.Bus, gpu *driver.Context, begun func()) error {
		m, err := gpu.LoadModule(ctx, []byte(misdeeds))
		if err != nil {
			return err
		}
		f, err := m.Function(ctx, "endless")
		if err != nil {
			return err
		}
		p, err := gpu.Own().Launch(ctx, f, one, one, 0)
		if err != nil {
			return err
		}
		begun()
		return p.Wait(ctx)
	},
	"allocates without end": func(ctx context.Context, _ driver.Bus, gpu *driver.Context, begun func()) error {
		refused := 0
		for size := uint64(64 << 20); ; {
			if _, err := gpu.Alloc(ctx, size); err == nil {
				continue
			}
			refused++
			if size > 4096 {
				size /= 2
			}
			if refused == 100 {
				begun()
			}
		}
	},
	"floods doorbells": func(_ context.Context, bus driver.Bus, _ *driver.Context, begun func()) error {
		for i := 0; ; i++ {
			if err := bus.Doorbell(uint32(abi.Doorbell(i % abi.MaxChannels))); err != nil {
				return err
			}
			if i == 100_000 {
				begun()
			}
		}
	},
	"makes contexts without end": func(ctx context.Context, _ driver.Bus, gpu *driver.Context, begun func()) error {
		var err error
		for err == nil {
			_, err = gpu.Device().NewContext(ctx, driver.ContextOptions{})
		}
		begun()
		<-ctx.Done()
		return err
	},
	"writes garbage to registers": func(_ context.Context, bus driver.Bus, _ *driver.Context, begun func()) error {
		r := rand.New(rand.NewPCG(1, 2))
		for i := 0; ; i++ {
			if err := bus.Write(4*uint32(r.IntN(abi.BAR0Size/4)), garbage(r)); err != nil {
				return err
			}
			if i == 20_000 {
				begun()
			}
		}
	},
	"writes garbage to rings": func(_ context.Context, bus driver.Bus, _ *driver.Context, begun func()) error {
		r := rand.New(rand.NewPCG(3, 4))
		shared := bus.Shared()
		for i := 0; ; i++ {
			// The rings are near the start of what both sides share.
			at := 4 * r.IntN(min(len(shared), 1<<20)/4)
			abi.StoreWord(shared, at, garbage(r))
			if err := bus.Doorbell(uint32(abi.Doorbell(r.IntN(4)))); err != nil {
				return err
			}
			if i == 100_000 {
				begun()
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

// misbehave is the guest's process: it attaches as a guest does, and then does
// what it is told.
func misbehave(mode, socket string) int {
	do := func() error {
		ctx := context.Background()
		bus, err := driver.DialVFIOUser(ctx, socket)
		if err != nil {
			return err
		}
		dev, err := driver.Open(ctx, bus)
		if err != nil {
			return err
		}
		gpu, err := dev.NewContext(ctx, driver.ContextOptions{})
		if err != nil {
			return err
		}
		return mischief[mode](ctx, bus, gpu, func() { fmt.Println(atIt) })
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
