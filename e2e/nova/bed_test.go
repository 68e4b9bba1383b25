package nova

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
)

var (
	enabled = flag.Bool("nova", false, "run the tests that need the test bed of scripts/nova-testbed.sh")
	update  = flag.Bool("update", false, "write the recorded answers of Placement anew")
)

// timeout bounds any wait for the test bed, on a busy machine.
const timeout = 2 * time.Minute

// slowTimeout bounds any wait for guests, whose instructions are translated.
const slowTimeout = 15 * time.Minute

// bed is a test bed that runs.
type bed struct {
	tb  testing.TB
	dir string
	pid int // its first process
	// hosts are the computes with VMs, and free is the memory of each of their GPUs that nobody had
	// at the start.
	hosts []string
	free  map[string]uint64
}

// script is the test bed's own command line.
const script = "../../scripts/nova-testbed.sh"

// startBed starts a test bed with so many computes without VMs, and with. It ends with the test.
func startBed(tb testing.TB, fakes, hosts int) *bed {
	tb.Helper()
	if !*enabled {
		tb.Skip("part of `make test-nova`: -nova is not set")
	}
	// Paths of sockets are short.
	dir, err := os.MkdirTemp("", "nova-")
	if err != nil {
		tb.Fatal(err)
	}
	b := &bed{tb: tb, dir: filepath.Join(dir, "bed")}
	tb.Cleanup(func() {
		if tb.Failed() {
			b.showLogs()
		}
		if out, err := b.command("stop").CombinedOutput(); err != nil {
			tb.Errorf("stop the test bed: %v: %s", err, out)
		}
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	args := []string{"start", "--fakes", strconv.Itoa(fakes), "--hosts", strconv.Itoa(hosts)}
	if hosts > 0 {
		bin, err := host.Programs("vgpu-hook", "vgpu-libvirt", "vgpu-qemu", "vgpu-placement")
		if err != nil {
			tb.Fatal(err)
		}
		args = append(args, "--programs", bin)
	}
	start := b.command(args...)
	start.Stderr = os.Stderr
	if err := start.Run(); err != nil {
		tb.Fatalf("start the test bed: %v", err)
	}
	pid, err := os.ReadFile(filepath.Join(b.dir, "pid"))
	if err == nil {
		b.pid, err = strconv.Atoi(strings.TrimSpace(string(pid)))
	}
	if err != nil {
		tb.Fatal(err)
	}
	for n := range hosts {
		b.hosts = append(b.hosts, fmt.Sprintf("host%d", n+1))
	}
	b.free = b.freeMemory()
	return b
}

// command returns a command of the test bed's own.
func (b *bed) command(args ...string) *exec.Cmd {
	cmd := exec.Command(script, args...)
	cmd.Env = append(os.Environ(), "VGPUD_NOVA_BED="+b.dir)
	return cmd
}

// showLogs logs the end of what each service has printed.
func (b *bed) showLogs() {
	logs, err := filepath.Glob(filepath.Join(b.dir, "log", "*"))
	if err != nil {
		b.tb.Error(err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			b.tb.Error(err)
		}
		b.tb.Logf("log of %s:\n%s", filepath.Base(path), text[max(0, len(text)-8<<10):])
	}
}

// dial connects to an address of the test bed's network.
func (b *bed) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	type result struct {
		net.Conn
		error
	}
	done := make(chan result, 1)
	go func() {
		// The thread is in another network from here on, so it is not unlocked and ends with the
		// goroutine.
		runtime.LockOSThread()
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", b.pid))
		if err != nil {
			done <- result{nil, err}
			return
		}
		defer func() { _ = ns.Close() }() // it was only read
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{nil, fmt.Errorf("enter the test bed's network: %w", err)}
			return
		}
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		done <- result{c, err}
	}()
	r := <-done
	return r.Conn, r.error
}

// until waits until ok returns no error.
func until(tb testing.TB, what string, ok func() error) {
	tb.Helper()
	untilWithin(tb, timeout, what, ok)
}

// untilSlow is until for what guests without KVM do.
func untilSlow(tb testing.TB, what string, ok func() error) {
	tb.Helper()
	untilWithin(tb, slowTimeout, what, ok)
}

func untilWithin(tb testing.TB, bound time.Duration, what string, ok func() error) {
	tb.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(bound)
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			tb.Fatalf("%s: %v", what, err)
		}
	}
}
