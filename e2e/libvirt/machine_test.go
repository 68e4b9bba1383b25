package libvirt

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	"vgpud/e2e/proc"
	"vgpud/mediator/api"
	"vgpud/vfio/qemu"
)

// roleVariable makes this binary a machine's first process.
const roleVariable = "VGPUD_TEST_MACHINE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		if err := runInit(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if err := host.Cleanup(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

const (
	// timeout bounds any wait, under TCG on a busy host.
	timeout    = 2 * time.Minute
	programDir = "/opt/vgpud" // our programs, in a machine
	depsDir    = "/opt/deps"  // what VMs need, in a machine
)

// machine is an isolated machine, as far as libvirt can tell.
type machine struct {
	tb       testing.TB
	dir      string // short, for sockets' sake
	init     int    // its first process
	Client   *api.Client
	daemon   *process
	libvirtd *process
}

// newMachine creates a machine in which libvirt, a soft GPU and our daemon run.
func newMachine(tb testing.TB) *machine {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Fatal("a libvirt of the test's own needs a root directory and namespaces of its own, so this test needs root: run it with sudo")
	}
	deps, err := qemu.Find("")
	if err != nil {
		tb.Fatal(err)
	}
	bin, err := host.Programs("vgpu-hook", "vgpu-libvirt")
	if err != nil {
		tb.Fatal(err)
	}
	h := &machine{tb: tb}
	if h.dir, err = os.MkdirTemp("", "vgpud-"); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(h.dir); err != nil {
			tb.Error(err)
		}
	})
	for _, d := range []string{"run/libvirt", "run/vgpud", "log/qemu"} {
		if err := os.MkdirAll(filepath.Join(h.dir, d), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(h.dir, "log/broken"), []byte("#!/bin/dash\nexit 1\n"), 0o755); err != nil {
		tb.Fatal(err)
	}
	h.setHook(ourHook)
	h.start(plan{
		Base: h.dir, Root: deps.Root,
		Binds: map[string]string{"/run": filepath.Join(h.dir, "run"), "/var/run": filepath.Join(h.dir, "run"), "/log": filepath.Join(h.dir, "log"), "/var/log/libvirt/qemu": filepath.Join(h.dir, "log/qemu"), programDir: bin, depsDir: deps.Dir},
		Files: map[string]string{"/etc/vgpud/vgpud.yaml": "gpus:\n- {name: gpu0, kind: soft, socket: /run/vgpud/gpu0.sock}\n"},
		Links: map[string]string{"/etc/libvirt/hooks/qemu.d/50-vgpu": "/log/hook"},
	})
	h.Client = api.NewClient(filepath.Join(h.dir, "run/vgpud/vgpud.sock"))
	tb.Cleanup(h.Client.Close)
	tb.Cleanup(h.showQEMU)
	h.spawn("virtlogd", "/usr/sbin/virtlogd")
	h.startLibvirt()
	h.spawn("softgpu", programDir+"/vgpud", "softgpu", "--socket", "/run/vgpud/gpu0.sock")
	h.until("the soft GPU", func() error { _, err := os.Stat(filepath.Join(h.dir, "run/vgpud/gpu0.sock")); return err })
	h.startDaemon()
	return h
}

const ourHook = programDir + "/vgpu-hook"

// setHook makes a program of the machine libvirt's hook.
func (h *machine) setHook(path string) {
	h.tb.Helper()
	link := filepath.Join(h.dir, "log/hook")
	if err := errors.Join(os.RemoveAll(link), os.Symlink(path, link)); err != nil {
		h.tb.Fatal(err)
	}
}

// start starts the machine's first process. All others end with it.
func (h *machine) start(p plan) {
	h.tb.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		h.tb.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		h.tb.Fatal(err)
	}
	var problems bytes.Buffer
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"=1")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &problems
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC, Pdeathsig: unix.SIGKILL,
	}
	cmd.WaitDelay = 10 * time.Second // for other processes that have its standard error
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.tb.Fatal(err)
	}
	started, said, ended := make(chan error, 1), make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		// The first process is killed when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		// Wait closes out, so read the output first.
		line, _ := bufio.NewReader(out).ReadString('\n')
		said <- line
		_ = cmd.Wait() // it is killed at the end
	}()
	if err := <-started; err != nil {
		h.tb.Fatalf("make namespaces for a libvirt of the test's own: %v", err)
	}
	h.init = cmd.Process.Pid
	h.tb.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			h.tb.Error(err)
		}
		<-ended
	})
	line := "nothing"
	select {
	case line = <-said:
	case <-time.After(timeout):
	}
	if line != "ready\n" {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			h.tb.Error(err)
		}
		<-ended // so that problems is complete
		h.tb.Fatalf("the first process says %q: %v: %s", line, cmd.ProcessState, problems.String())
	}
}

// command returns a command that runs in the machine.
func (h *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(h.init), "--mount", "--pid", "--net", "--ipc", "--root", "--wd", "--"}, args...)...)
	cmd.Env = []string{"PATH=" + programDir + ":/usr/sbin:/usr/bin", "HOME=/root", "LC_ALL=C"}
	return cmd
}

// process is a process that runs in the machine until it ends.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// spawn starts a program that keeps running.
func (h *machine) spawn(name string, args ...string) *process {
	h.tb.Helper()
	p := &process{cmd: h.command(context.Background(), args...), log: filepath.Join(h.dir, "log", name), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		h.tb.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := errors.Join(p.cmd.Start(), log.Close()); err != nil {
		h.tb.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // it was killed, or its log says why
	}()
	h.tb.Cleanup(func() {
		if h.tb.Failed() {
			h.tb.Logf("log of %s:\n%s", name, p.logTail())
		}
	})
	return p
}

// logTail returns the end of a process's log.
func (p *process) logTail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-256<<10):])
}

// showQEMU logs the QEMUs' output if the test fails.
func (h *machine) showQEMU() {
	if !h.tb.Failed() {
		return
	}
	logs, err := filepath.Glob(filepath.Join(h.dir, "log/qemu/*.log"))
	if err != nil {
		h.tb.Error(err)
	}
	for _, path := range logs {
		h.tb.Logf("log of QEMU, %s:\n%s", filepath.Base(path), (&process{log: path}).logTail())
	}
}

// kill ends a program of the machine, which is nsenter's child.
func (h *machine) kill(p *process) {
	h.tb.Helper()
	children, err := proc.Children(p.cmd.Process.Pid)
	if err != nil {
		h.tb.Fatal(err)
	}
	for _, pid := range children {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			h.tb.Fatal(err)
		}
	}
	<-p.ended
}

func (h *machine) startLibvirt() {
	h.tb.Helper()
	h.libvirtd = h.spawn("libvirtd", "/usr/sbin/libvirtd")
	h.until("libvirt's answer", func() error {
		c, err := net.Dial("unix", filepath.Join(h.dir, "run/libvirt/libvirt-sock"))
		if err != nil {
			return err
		}
		return c.Close()
	})
}

func (h *machine) startDaemon() {
	h.tb.Helper()
	h.daemon = h.spawn("vgpud", programDir+"/vgpud", "serve", "--config", "/etc/vgpud/vgpud.yaml")
	h.until("the daemon's answer", func() error { _, err := h.Client.Health(h.tb.Context()); return err })
}

// until waits for a condition.
func (h *machine) until(what string, ask func() error) {
	h.tb.Helper()
	host.Until(h.tb, timeout, what, ask)
}

// try runs a program to its end.
func (h *machine) try(stdin string, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(h.tb.Context(), timeout)
	defer cancel()
	cmd := h.command(ctx, args...)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &problems
	err = cmd.Run()
	return out.String(), strings.TrimSpace(problems.String()), err
}

// run is try for a program that must not fail.
func (h *machine) run(args ...string) string {
	h.tb.Helper()
	out, problems, err := h.try("", args...)
	if err != nil {
		h.tb.Fatalf("%v: %v: %s", args, err, problems)
	}
	return out
}

// fails runs a program that must fail, and returns its error message.
func (h *machine) fails(args ...string) string {
	h.tb.Helper()
	out, problems, err := h.try("", args...)
	if err == nil {
		h.tb.Fatalf("%v succeeds: %s", args, out)
	}
	return problems
}

// define defines a libvirt domain of that name, and returns its UUID.
func (h *machine) define(name string) string {
	h.tb.Helper()
	h.defineXML(strings.ReplaceAll(domainXML, "NAME", name))
	return strings.TrimSpace(h.run("virsh", "domuuid", name))
}

// defineXML defines a libvirt domain.
func (h *machine) defineXML(xml string) {
	h.tb.Helper()
	if out, problems, err := h.try(xml, "virsh", "define", "/dev/stdin"); err != nil {
		h.tb.Fatalf("define: %v: %s%s", err, out, problems)
	}
}

// console returns the output of the guest's kernel, init and agent.
func (h *machine) console(name string) string {
	b, err := os.ReadFile(filepath.Join(h.dir, "log", name+".console"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// domainXML is a domain without virtual GPUs. QEMU's default processor is AMD's with 40 address
// bits, which leaves no addresses for BARs behind ports.
const domainXML = `<domain type='qemu'>
  <name>NAME</name>
  <memory unit='MiB'>128</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>` + depsDir + `/vmlinux</kernel>
    <initrd>` + depsDir + `/initramfs.cpio</initrd>
    <cmdline>console=ttyS0 quiet panic=-1 mitigations=off noreplace-smp cryptomgr.notests tsc=reliable no_timer_check</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='custom' match='exact' check='none'>
    <model fallback='allow'>qemu64</model>
    <maxphysaddr mode='emulate' bits='39'/>
  </cpu>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
    <serial type='file'><source path='/log/NAME.console'/><target port='0'/></serial>
    <serial type='null'><target port='1'/></serial>
  </devices>
</domain>
`
