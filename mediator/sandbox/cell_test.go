package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// seen is what a process in a cell finds around itself.
type seen struct {
	UID, GID int
	Groups   []int
	// Rights is the permitted capabilities, Seccomp and NoNewPrivs as the kernel
	// prints them.
	Rights, NoNewPrivs string
	Devices            []string
	// Tried is what came of what it tried.
	Tried map[string]string
}

// look is what the process does. It tries to get at process victim, and writes to
// the directory that it is told.
func look() seen {
	s := seen{UID: os.Getuid(), GID: os.Getgid(), Tried: make(map[string]string)}
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
	return s
}

// waitForever is a process for others to attack. It has done what a guest's
// processes do first.
func waitForever() {
	if err := Limit(); err != nil {
		fmt.Println(err)
	}
	fmt.Println("waiting")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// wholeWarden is one for tests as root, in a place that other users can reach.
func wholeWarden(t *testing.T) (w *Warden, program string) {
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
	w, err = NewWarden(Options{Mode: Required, Cgroup: NoCgroup, Program: program})
	if err != nil {
		t.Skip(err)
	}
	return w, program
}

// inCell makes a process of this binary in a guest's new cell.
func inCell(t *testing.T, w *Warden, program, role string, env ...string) (*exec.Cmd, *ipc.Cell) {
	t.Helper()
	cell, err := w.Cell(ipc.GPU{Name: "gpu0", Kind: "soft", Socket: "gpu0.sock"})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	cmd.Stderr = os.Stderr
	return cmd, cell
}

// TestCells: a guest's process is a user without rights, sees no device but its
// own, writes nowhere, and can do nothing to another guest's.
func TestCells(t *testing.T) {
	w, program := wholeWarden(t)
	victim, theirs := inCell(t, w, program, "wait")
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
	cmd, cell := inCell(t, w, program, "cell", "VICTIM="+strconv.Itoa(victim.Process.Pid), "OPEN="+open, "NODE="+node)
	if cell.UID == theirs.UID {
		t.Fatalf("two guests are user %d", cell.UID)
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Start(cmd, cell); err != nil {
		t.Fatal(err)
	}
	var got seen
	err = json.NewDecoder(said).Decode(&got)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	want := seen{
		UID: cell.UID, GID: cell.UID, Groups: []int{DefaultUIDs.First}, Rights: "0000000000000000", NoNewPrivs: "1",
		Devices: []string{"full", "null", "random", "shm", "urandom", "zero"},
		Tried: map[string]string{
			"attach to another guest's": "EPERM", "look into another guest's": "EACCES", "signal another guest's": "EPERM",
			"write a file that all may write to": "EROFS", "write at home": "done",
			"name a thread": "done", "write to the kernel's settings": "EACCES", "open a device node elsewhere": "EACCES",
			"write to /dev/null": "done", "become root": "EPERM", "mount": "EPERM",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what a process in a cell finds (-want +got):\n%s", diff)
	}
	// What was done on a thread of its own is not this process's.
	if _, err := os.Stat("/dev/tty"); err != nil {
		t.Errorf("this process's own devices: %v", err)
	}
	for _, c := range []*ipc.Cell{theirs, cell} {
		if err := w.Release(c); err != nil {
			t.Error(err)
		}
	}
}

// TestUnprivileged: without rights there is an empty cell, and the reasons.
func TestUnprivileged(t *testing.T) {
	w := &Warden{mode: Auto, pool: newPool(DefaultUIDs)}
	cell, err := w.Cell(ipc.GPU{Kind: "soft"})
	if diff := cmp.Diff(&ipc.Cell{}, cell); err != nil || diff != "" {
		t.Errorf("cell: %v, (-want +got):\n%s", err, diff)
	}
	if err := Start(exec.Command("/bin/true"), cell); err != nil {
		t.Error(err)
	}
	dir := t.TempDir() // whose parents are closed
	if _, err := NewWarden(Options{Mode: Required, Cgroup: NoCgroup, Program: filepath.Join(dir, "vgpud")}); err == nil {
		t.Error("a warden that can't do what is required")
	}
	auto, err := NewWarden(Options{Mode: Auto, Cgroup: filepath.Join(dir, "cgroup"), Program: filepath.Join(dir, "vgpud")})
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"users of their own: ", "control groups of their own: "} {
		if !slices.ContainsFunc(auto.Missing(), func(m string) bool { return strings.HasPrefix(m, what) }) {
			t.Errorf("nothing missing of %q in %q", what, auto.Missing())
		}
	}
	off, err := NewWarden(Options{Mode: Off})
	if err != nil {
		t.Fatal(err)
	}
	if cell, err := off.Cell(ipc.GPU{Kind: "soft"}); cell != nil || err != nil {
		t.Errorf("off: cell %v, %v", cell, err)
	}
}
