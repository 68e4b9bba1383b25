package vfiouser_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// findQEMU finds a QEMU that has vfio-user-pci (10.1 and later): the program or script that VGPUD_QEMU names, which then must have
// it, or the one in PATH.
func findQEMU(t *testing.T) string {
	t.Helper()
	name, must := os.LookupEnv("VGPUD_QEMU")
	if !must {
		name = "qemu-system-x86_64"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		err = exec.Command(path, "-device", "vfio-user-pci,help").Run()
	}
	if err != nil && must {
		t.Fatalf("VGPUD_QEMU=%s is no QEMU with vfio-user-pci: %v", name, err)
	}
	if err != nil {
		t.Skipf("no QEMU with vfio-user-pci (%v); VGPUD_QEMU may name one", err)
	}
	return path
}

// A real QEMU attaches, its firmware places the BARs, and after it has gone the next one finds the device as the first did.
func TestRealQEMUAttaches(t *testing.T) {
	qemu := findQEMU(t)
	vfiousertest.CheckLeaks(t)
	dev := newPCIDevice(t)
	placed := make(chan uint64, 1)
	write := dev.OnWrite
	dev.OnWrite = func(region uint32, offset uint64, p []byte) error {
		err := write(region, offset, p)
		if addr, ok := dev.config.BARAddress(2); ok && addr != 0 {
			select {
			case placed <- addr:
			default:
			}
		}
		return err
	}
	srv := &vfiouser.Server{Device: dev}
	path, stop := serveAt(t, srv)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for range 2 {
		q := startQEMU(ctx, t, qemu, path)
		select {
		case addr := <-placed:
			info := q.monitor("info pci")
			if want := fmt.Sprintf("BAR2: 64 bit prefetchable memory at %#x", addr); !strings.Contains(info, want) {
				t.Errorf("info pci lacks %q:\n%s", want, info)
			}
		case <-ctx.Done():
			t.Fatal("the firmware has not placed the BARs")
		}
		if _, err := vfiouser.Dial(ctx, path); err == nil {
			t.Error("a second client is accepted beside QEMU")
		}
		q.quit()
		select {
		case <-placed: // by this QEMU, a second time
		default:
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if s := srv.Stats(); s.Clients != 2 || s.Errors != 0 || s.Broken != 0 {
		t.Errorf("counts %+v", s)
	}
}

// qmp is a running QEMU and its monitor.
type qmp struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

func startQEMU(ctx context.Context, t *testing.T, qemu, socket string) *qmp {
	t.Helper()
	device := fmt.Sprintf(`{"driver":"vfio-user-pci","id":"vgpu0","socket":{"path":%q,"type":"unix"}}`, socket)
	cmd := exec.CommandContext(ctx, qemu, "-accel", "tcg", "-cpu", "qemu64", "-m", "64M", "-machine", "q35,memory-backend=mem",
		"-object", "memory-backend-memfd,id=mem,size=64M,share=on", "-nodefaults", "-display", "none", "-qmp", "stdio", "-device", device)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	q := &qmp{t, cmd, in, bufio.NewScanner(out)}
	if !q.out.Scan() {
		t.Fatalf("QEMU did not start: %v", cmd.Wait())
	}
	q.execute("qmp_capabilities", nil)
	return q
}

// execute runs a command and returns what it returned; events in between are passed over.
func (q *qmp) execute(name string, args map[string]any) (result any) {
	q.t.Helper()
	request, err := json.Marshal(map[string]any{"execute": name, "arguments": args})
	if args == nil {
		request, err = json.Marshal(map[string]any{"execute": name})
	}
	if err != nil {
		q.t.Fatal(err)
	}
	if _, err := q.in.Write(append(request, '\n')); err != nil {
		q.t.Fatal(err)
	}
	for q.out.Scan() {
		var reply map[string]any
		if err := json.Unmarshal(q.out.Bytes(), &reply); err != nil {
			q.t.Fatal(err)
		}
		if e, ok := reply["error"]; ok {
			q.t.Fatalf("%s: %v", name, e)
		}
		if r, ok := reply["return"]; ok {
			return r
		}
	}
	q.t.Fatalf("%s: QEMU is gone", name)
	return nil
}

func (q *qmp) monitor(line string) string {
	q.t.Helper()
	s, _ := q.execute("human-monitor-command", map[string]any{"command-line": line}).(string)
	return s
}

func (q *qmp) quit() {
	q.t.Helper()
	q.execute("quit", nil)
	for q.out.Scan() {
	}
	if err := q.cmd.Wait(); err != nil {
		q.t.Errorf("QEMU ended with %v", err)
	}
}
