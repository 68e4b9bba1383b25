package nvidia

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"vgpud/gpu"
)

// alone runs the calling test in a process of its own, since a fault ends all contexts of its
// process. It reports whether this is that process.
func alone(t *testing.T) bool {
	t.Helper()
	const env = "VGPUD_TEST_ALONE"
	if os.Getenv(env) == t.Name() {
		return true
	}
	if _, err := library(); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+t.Name())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	t.Logf("%s", out.Bytes())
	if err != nil {
		t.Error(err)
	}
	return false
}

func faults(t *testing.T, kernel string, kind gpu.FaultKind) {
	d, c := hardwareContext(t, gpu.ContextOptions{})
	ch, beside := channelOf(t, c), channelOf(t, c)
	k := load(t, c)
	empty := k("empty")
	f, err := ch.Launch(k(kernel))
	o := ran(t, ch, f, err)
	t.Logf("outcome: %v", o.Err)
	var fault *gpu.Fault
	if !errors.As(o.Err, &fault) || fault.Kind != kind || fault.Kernel != kernel {
		t.Errorf("outcome %v, want a fault of kind %v", o.Err, kind)
	}
	if err := c.Fault(); !errors.As(err, &fault) {
		t.Errorf("context's fault: %v", err)
	}
	if _, err := beside.Launch(empty); !errors.As(err, &fault) {
		t.Errorf("a launch in another channel: %v", err)
	}
	if _, err := c.Alloc(1); !errors.As(err, &fault) {
		t.Errorf("an allocation: %v", err)
	}
	start := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("closed in %v", time.Since(start))
	if _, err := d.NewContext(t.Context(), gpu.ContextOptions{}); err == nil {
		t.Log("a new context of the same process is possible")
	} else {
		t.Logf("a new context: %v", err)
	}
}

func TestHardwareFaultAddress(t *testing.T) {
	if alone(t) {
		faults(t, "bad", gpu.FaultAddress)
	}
}

func TestHardwareFaultTrap(t *testing.T) {
	if alone(t) {
		faults(t, "trap", gpu.FaultTrap)
	}
}

// A kernel past its limit poisons the context, and the process ends with it.
func TestHardwareTimeLimit(t *testing.T) {
	if !alone(t) {
		return
	}
	_, c := hardwareContext(t, gpu.ContextOptions{KernelTimeLimit: 200 * time.Millisecond})
	ch := channelOf(t, c)
	k := load(t, c)
	f, err := ch.Launch(k("spin", 100e6))
	if o := ran(t, ch, f, err); o.Err != nil {
		t.Fatal("a kernel of half the limit: ", o.Err)
	}
	start := time.Now()
	f, err = ch.Launch(k("spin", 60e9))
	o := ran(t, ch, f, err)
	if !errors.Is(o.Err, gpu.ErrTimeLimit) {
		t.Errorf("outcome %v, want the time limit", o.Err)
	}
	t.Logf("ended after %v: %v", time.Since(start), o.Err)
	select {
	case <-c.Hung():
	default:
		t.Error("Hung is not closed, though only the process's end stops the kernel")
	}
	start = time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("closed in %v", time.Since(start))
}
