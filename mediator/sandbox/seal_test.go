package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// roleVariable makes this binary the confined process of a test.
const roleVariable = "VGPUD_TEST_CONFINED"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "sandbox":
		answer(observe())
	case "wait":
		waitForever()
	default:
		answer(sealed(Filter(role)))
	}
}

// answer prints a result for the test and exits.
func answer(results any) {
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// sealed tries, on a thread older than the seal and on new ones, the calls that a filter is about.
func sealed(f Filter) map[string]string {
	results := make(map[string]string)
	var mu sync.Mutex
	note := func(what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		results[what] = "allowed"
		var errno unix.Errno
		switch {
		case errors.As(err, &errno):
			results[what] = unix.ErrnoName(errno)
		case err != nil:
			results[what] = err.Error()
		}
	}
	old := make(chan func())
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread()
		for f := range old {
			f()
		}
	})
	call := func(number uintptr, args ...uintptr) error {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
	zero, err := unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0)
	err = errors.Join(err, Limit())
	dumpable, derr := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	note(fmt.Sprintf("dumpable %d", dumpable), derr)
	if err := errors.Join(err, Seal(f)); err != nil {
		note("seal", err)
		return results
	}
	note("exec", exec.Command("/bin/true").Run())
	old <- func() { note("execve on an old thread", unix.Exec("/bin/true", []string{"true"}, nil)) }
	note("ptrace", call(unix.SYS_PTRACE, unix.PTRACE_ATTACH, uintptr(os.Getppid())))
	note("process_vm_readv", call(unix.SYS_PROCESS_VM_READV, uintptr(os.Getppid())))
	note("pidfd_open", call(unix.SYS_PIDFD_OPEN, uintptr(os.Getppid())))
	note("kill", unix.Kill(os.Getppid(), 0))
	note("tgkill of another", call(unix.SYS_TGKILL, uintptr(os.Getppid()), uintptr(os.Getppid())))
	note("tgkill of its own", call(unix.SYS_TGKILL, uintptr(os.Getpid()), uintptr(os.Getpid())))
	note("files' owner", call(unix.SYS_FCNTL, uintptr(zero), unix.F_SETOWN, uintptr(os.Getppid())))
	note("files' owner, the other way", call(unix.SYS_FCNTL, uintptr(zero), fSetOwnEx)) // allowed, EFAULT
	note("files' flags", call(unix.SYS_FCNTL, uintptr(zero), unix.F_GETFL))
	note("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	note("clone with a user name space", call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD)))
	note("clone3", call(unix.SYS_CLONE3))
	note("mount", unix.Mount("", "/", "", unix.MS_REMOUNT, ""))
	note("bpf", call(unix.SYS_BPF))
	note("userfaultfd", call(unix.SYS_USERFAULTFD))
	note("io_uring_setup", call(unix.SYS_IO_URING_SETUP))
	note("keyctl", call(unix.SYS_KEYCTL))
	note("setuid", unix.Setresuid(-1, -1, -1))
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	note("internet socket", err)
	_, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	note("unix socket", err)
	_, err = os.Create(filepath.Join(os.TempDir(), "vgpud-confined"))
	note("create a file", errors.Unwrap(err))
	_, err = os.ReadDir("/proc/self/task")
	note("list threads", err)
	done.Go(func() {
		runtime.LockOSThread()
		time.Sleep(time.Millisecond)
	})
	fd, err := unix.MemfdCreate("test", 0)
	if err == nil {
		err = unix.Ftruncate(fd, 4096)
	}
	if err == nil {
		_, err = unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	note("shared memory", err)
	device(zero, note)
	close(old)
	done.Wait()
	return results
}

// device makes the calls of a GPU's library on a device node that every host has. The result of a
// call that the filter lets through is the device's own. open was opened before the seal.
func device(open int, note func(what string, err error)) {
	fd, err := unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0)
	note("open a device", err)
	if err != nil {
		fd = open
	}
	_, err = unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	note("map a device", err)
	_, err = unix.IoctlGetInt(fd, rmControl)
	note("command a device", err)
}

// rmControl is NV_ESC_RM_CONTROL, an ioctl of NVIDIA's driver.
const rmControl = 3<<30 | 32<<16 | 'F'<<8 | 0x2a

// confined runs this binary as the confined process and decodes its output.
func confined(t *testing.T, role string, start func(*exec.Cmd) error, into any) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	err = json.NewDecoder(out).Decode(into)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Fatal(err)
	}
}

func TestSeal(t *testing.T) {
	both := map[string]string{
		"exec": "EPERM", "execve on an old thread": "EPERM", "ptrace": "EPERM", "process_vm_readv": "EPERM",
		"pidfd_open": "EPERM", "kill": "EPERM", "tgkill of another": "EPERM", "tgkill of its own": "allowed",
		"files' owner": "EPERM", "files' owner, the other way": "EPERM", "files' flags": "allowed", "unshare": "EPERM", "clone with a user name space": "EPERM",
		"clone3": "ENOSYS", "mount": "EPERM", "bpf": "EPERM", "userfaultfd": "EPERM", "io_uring_setup": "EPERM",
		"keyctl": "EPERM", "setuid": "EPERM", "internet socket": "EPERM",
		"list threads": "allowed", "shared memory": "allowed", "dumpable 0": "allowed",
		"map a device": "allowed",
	}
	for _, c := range []struct {
		filter Filter
		own    map[string]string
	}{
		{Listed, map[string]string{"unix socket": "EPERM", "create a file": "EPERM",
			"open a device": "EPERM", "command a device": "EPERM"}},
		{Unlisted, map[string]string{"unix socket": "allowed", "create a file": "allowed",
			"open a device": "allowed", "command a device": "ENOTTY"}}, // which the device itself says
	} {
		t.Run(string(c.filter), func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			want := make(map[string]string)
			for _, m := range []map[string]string{both, c.own} {
				for what, how := range m {
					want[what] = how
				}
			}
			var got map[string]string
			confined(t, string(c.filter), (*exec.Cmd).Start, &got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what a sealed process may do (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFilterOf checks that only code that is all known gets the list.
func TestFilterOf(t *testing.T) {
	for kind, want := range map[string]Filter{"soft": Listed, "nvidia": Unlisted, "": Unlisted} {
		if got := FilterOf(kind); got != want {
			t.Errorf("FilterOf(%q) = %q, want %q", kind, got, want)
		}
	}
}
