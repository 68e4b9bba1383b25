package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
)

// observed is what a process finds in its sandbox.
type observed struct {
	UID, GID int
	Groups   []int
	// Rights is the permitted capabilities. Both strings are as the kernel prints them.
	Rights, NoNewPrivs string
	Devices            []string
	// Tried holds the outcome of each attempt.
	Tried map[string]string
}

// observe attacks process $VICTIM and tries what a sandbox forbids.
func observe() observed {
	s := observed{UID: os.Getuid(), GID: os.Getgid(), Tried: make(map[string]string)}
	s.Groups, _ = os.Getgroups()
	status, _ := os.ReadFile("/proc/self/status")
	about := fields(string(status))
	s.Rights, s.NoNewPrivs = about["CapPrm"], about["NoNewPrivs"]
	entries, _ := os.ReadDir("/dev")
	for _, e := range entries {
		s.Devices = append(s.Devices, e.Name())
	}
	try := func(what string, err error) {
		var errno unix.Errno
		switch {
		case errors.As(err, &errno):
			s.Tried[what] = unix.ErrnoName(errno)
		case err != nil:
			s.Tried[what] = err.Error()
		default:
			s.Tried[what] = "done"
		}
	}
	victim, _ := strconv.Atoi(os.Getenv("VICTIM"))
	try("attach to another guest's", unix.PtraceAttach(victim))
	_, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", victim))
	try("look into another guest's", err)
	try("signal another guest's", unix.Kill(victim, unix.SIGTERM))
	try("write a file that all may write to", os.WriteFile(filepath.Join(os.Getenv("OPEN"), "x"), nil, 0o600))
	home, err := os.UserHomeDir()
	if err == nil {
		err = os.WriteFile(filepath.Join(home, "x"), nil, 0o600)
	}
	try("write at home", err)
	try("name a thread", os.WriteFile("/proc/self/comm", []byte("renamed"), 0))
	try("write to the kernel's settings", os.WriteFile("/proc/sys/kernel/core_pattern", nil, 0))
	_, err = os.Open(os.Getenv("NODE"))
	try("open a device node elsewhere", err)
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err == nil {
		_, err = null.Write([]byte("x"))
	}
	try("write to /dev/null", err)
	try("become root", unix.Setresuid(0, 0, 0))
	try("mount", unix.Mount("tmpfs", "/mnt", "tmpfs", 0, ""))
	conn, err := net.Dial("tcp", os.Getenv("LISTENS"))
	if err == nil {
		err = conn.Close()
	}
	try("reach the host's loopback address", err)
	key, _ := strconv.Atoi(os.Getenv("SHARED"))
	_, err = unix.SysvShmGet(key, 0, 0)
	try("attach System V shared memory", err)
	return s
}

// waitForever is the victim. It starts as a guest's process does.
func waitForever() {
	if err := Limit(); err != nil {
		fmt.Println(err)
	}
	fmt.Println("waiting")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// newTestManager returns a manager that confines in every way, and a program that all users can
// reach. It needs root.
func newTestManager(t *testing.T) (w *Manager, program string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can have processes of other users")
	}
	dir, err := os.MkdirTemp("", "vgpud-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "program")
	if err := errors.Join(os.Chmod(dir, 0o711), os.WriteFile(program, self, 0o755)); err != nil {
		t.Fatal(err)
	}
	w, err = NewManager(Options{Mode: Required, Cgroup: NoCgroup, Program: program})
	if err != nil {
		t.Skip(err)
	}
	return w, program
}

// inSandbox prepares a process of this binary and a new guest's sandbox for it.
func inSandbox(t *testing.T, w *Manager, program, role string, env ...string) (*exec.Cmd, *ipc.Sandbox) {
	t.Helper()
	box, err := w.Create(ipc.GPU{Name: "gpu0", Kind: "soft", Socket: "gpu0.sock"})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	cmd.Stderr = os.Stderr
	return cmd, box
}

// TestSandboxesIsolateGuests checks that a guest's process has no rights and no devices but its
// own, can write nowhere, and can do nothing to another guest's.
func TestSandboxesIsolateGuests(t *testing.T) {
	w, program := newTestManager(t)
	victim, theirs := inSandbox(t, w, program, "wait")
	in, err := victim.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Start(victim, theirs); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(in.Close(), victim.Wait()); err != nil {
			t.Error(err)
		}
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "waiting\n" {
		t.Fatal(line, err)
	}

	open := t.TempDir()
	node := filepath.Join(open, "null")
	if err := errors.Join(os.Chmod(filepath.Dir(open), 0o755), os.Chmod(open, 0o777), unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), os.Chmod(node, 0o666)); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	key := os.Getpid() // a key that no other run has
	shared, err := unix.SysvShmGet(key, 1, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := unix.SysvShmCtl(shared, unix.IPC_RMID, nil); err != nil {
			t.Error(err)
		}
	}()
	cmd, box := inSandbox(t, w, program, "sandbox", "VICTIM="+strconv.Itoa(victim.Process.Pid), "OPEN="+open, "NODE="+node,
		"LISTENS="+listener.Addr().String(), "SHARED="+strconv.Itoa(key))
	if box.UID == theirs.UID {
		t.Fatalf("two guests are user %d", box.UID)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Start(cmd, box); err != nil {
		t.Fatal(err)
	}
	var got observed
	err = json.NewDecoder(stdout).Decode(&got)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	want := observed{
		UID: box.UID, GID: box.UID, Groups: []int{DefaultUIDs.First}, Rights: "0000000000000000", NoNewPrivs: "1",
		Devices: []string{"full", "null", "random", "shm", "urandom", "zero"},
		Tried: map[string]string{
			"attach to another guest's": "EPERM", "look into another guest's": "EACCES", "signal another guest's": "EPERM",
			"write a file that all may write to": "EROFS", "write at home": "done",
			"name a thread": "done", "write to the kernel's settings": "EACCES", "open a device node elsewhere": "EACCES",
			"write to /dev/null": "done", "become root": "EPERM", "mount": "EPERM",
			"reach the host's loopback address": "ENETUNREACH", "attach System V shared memory": "ENOENT",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what a process in a sandbox finds (-want +got):\n%s", diff)
	}
	// The mounts of the child's thread are not this process's.
	if _, err := os.Stat("/dev/tty"); err != nil {
		t.Errorf("this process's own devices: %v", err)
	}
	for _, c := range []*ipc.Sandbox{theirs, box} {
		if err := w.Release(c); err != nil {
			t.Error(err)
		}
	}
}

// TestUnprivileged checks that a manager without rights returns an empty sandbox and the reasons.
func TestUnprivileged(t *testing.T) {
	w := &Manager{mode: Auto, pool: newPool(DefaultUIDs)}
	box, err := w.Create(ipc.GPU{Kind: "soft"})
	if diff := cmp.Diff(&ipc.Sandbox{}, box); err != nil || diff != "" {
		t.Errorf("sandbox: %v, (-want +got):\n%s", err, diff)
	}
	if err := Start(exec.Command("/bin/true"), box); err != nil {
		t.Error(err)
	}
	dir := t.TempDir() // other users can't reach it
	if _, err := NewManager(Options{Mode: Required, Cgroup: NoCgroup, Program: filepath.Join(dir, "vgpud")}); err == nil {
		t.Error("a manager that can't do what is required was created")
	}
	auto, err := NewManager(Options{Mode: Auto, Cgroup: filepath.Join(dir, "cgroup"), Program: filepath.Join(dir, "vgpud")})
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"users of their own: ", "control groups of their own: "} {
		if !slices.ContainsFunc(auto.Missing(), func(m string) bool { return strings.HasPrefix(m, what) }) {
			t.Errorf("nothing missing of %q in %q", what, auto.Missing())
		}
	}
	off, err := NewManager(Options{Mode: Off})
	if err != nil {
		t.Fatal(err)
	}
	if box, err := off.Create(ipc.GPU{Kind: "soft"}); box != nil || err != nil {
		t.Errorf("off: sandbox %v, %v", box, err)
	}
}
