package remote

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/gpu/soft/machine"
)

// sliced is a GPU with time slices.
var sliced = soft.Options{Machine: machine.Config{Mode: machine.Slices}, Priority: -1}

// handlesOf returns a context's handles.
func handlesOf(t *testing.T, c gpu.Context) gpu.Handles {
	t.Helper()
	h, err := c.(gpu.Handled).Handles()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// controlled is how long a kernel may take in TestControl. The host may be busy with other
// processes for a part of that, before the kernel is taken off the GPU.
const controlled = 2 * time.Second

// One process suspends another's context during a kernel. The context stays suspended when the
// first process exits, and a third process resumes it.
func TestControl(t *testing.T) {
	path, _ := serve(t, sliced)
	d, watcher := dial(t, path), dial(t, path)
	r := newRig(t, d, gpu.ContextOptions{KernelTimeLimit: controlled})
	h := handlesOf(t, r.ctx)
	copied, err := dup(h.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	c, err := watcher.Control(h)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetTimeslice(5 * time.Millisecond); err != nil {
		t.Error(err)
	}
	f := r.launch("forever", 1, 1, nil)
	if err := c.Suspend(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	// Its kernel is not ended at the kernel time limit, since it has not run.
	ctx, cancel := context.WithTimeout(t.Context(), controlled+controlled/4)
	defer cancel()
	if err := r.ch.Wait(ctx, f); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("off the GPU its kernel ended: %v, %v", err, r.ch.Outcome(f).Err)
	}
	again, err := watcher.Control(gpu.Handles{Files: []*os.File{copied}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := errors.Join(again.Resume(), again.Resume()); err != nil {
		t.Fatal(err)
	}
	if o := r.wait(f); !errors.Is(o.Err, gpu.ErrTimeLimit) {
		t.Errorf("its kernel ended with %v", o.Err)
	}
	if err := r.ctx.Close(); err != nil {
		t.Fatal(err)
	}
	if err := again.Suspend(); err == nil {
		t.Error("a context that is closed was taken off the GPU")
	}
}

// Control is refused for a context that does not exist, and for invalid orders.
func TestControlIsRefused(t *testing.T) {
	path, _ := serve(t, sliced)
	d := dial(t, path)
	r := newRig(t, d, gpu.ContextOptions{})
	h := handlesOf(t, r.ctx)
	if _, err := r.ctx.(gpu.Handled).Handles(); err == nil {
		t.Error("handles were handed out twice")
	}
	if _, err := d.Control(gpu.Handles{}); err == nil {
		t.Error("control without a file")
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Control(gpu.Handles{Files: []*os.File{null}}); err == nil {
		t.Error("control by a file that is no socket")
	}
	if err := null.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file was left open: %v", err)
	}
	c, err := d.Control(h)
	if err != nil {
		t.Fatal(err)
	}
	// An invalid order does not end the connection.
	for _, op := range []string{opCloseContext, opHello, "dance"} {
		if err := c.(*control).order(&request{Op: op}); err == nil {
			t.Errorf("%s was obeyed", op)
		}
	}
	if err := errors.Join(c.Suspend(), c.Resume(), c.Close()); err != nil {
		t.Error(err)
	}
	r.double(64, 1)

	exclusive, _ := serve(t, soft.Options{Priority: -1})
	r = newRig(t, dial(t, exclusive), gpu.ContextOptions{})
	if _, err := r.ctx.(gpu.Handled).Handles(); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("on a GPU that preempts nothing: %v", err)
	}
	local, err := soft.NewLocal(sliced)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	}()
	r = newRig(t, local, gpu.ContextOptions{})
	if _, err := r.ctx.(gpu.Handled).Handles(); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("in this process: %v", err)
	}
	if _, err := local.Control(gpu.Handles{}); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("in this process: %v", err)
	}
}

// A reply that comes after the time limit is not taken for that to the next order.
func TestControlOfASlowSocket(t *testing.T) {
	path, _ := serve(t, sliced)
	d := dial(t, path)
	ends, err := pairOfSockets()
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Control(gpu.Handles{Files: []*os.File{ends[0]}})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := packetConn(ends[1])
	if err != nil {
		t.Fatal(err)
	}
	answer := func(to string, r reply) {
		t.Helper()
		b, _, err := receive(peer, make([]byte, maxPacket))
		var req request
		if err = errors.Join(err, decode(b, &req)); err != nil || string(req.Op) != to {
			t.Errorf("order %+v, %v; want %s", req, err, to)
		}
		if b, err = encode(&r); err == nil {
			err = send(peer, b)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := c.Suspend(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
	}
	late := reply{Error: toRemote(gpu.ErrLost)}
	answer(string(opEnable), late)
	answer(string(opEnable), late)
	ended := make(chan error, 1)
	go func() { ended <- c.SetTimeslice(time.Millisecond) }()
	answer(string(opSlice), reply{})
	if err := <-ended; err != nil {
		t.Errorf("got the reply to an earlier order: %v", err)
	}
	if err := errors.Join(c.Close(), peer.Close()); err != nil {
		t.Error(err)
	}
}

// An order to a socket that never replies ends with the time limit.
func TestControlOfASilentSocket(t *testing.T) {
	path, _ := serve(t, sliced)
	d := dial(t, path)
	ends, err := pairOfSockets()
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Control(gpu.Handles{Files: []*os.File{ends[0]}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Suspend(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(c.Close(), ends[1].Close()); err != nil {
		t.Error(err)
	}
}
