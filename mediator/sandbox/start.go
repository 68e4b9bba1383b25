package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
)

// Start starts a guest's process in its sandbox; nil confines nothing. It keeps what
// cmd.SysProcAttr already holds. The process is in its control group when Start returns, so it must
// start no others before it has heard from the caller.
func Start(cmd *exec.Cmd, box *ipc.Sandbox) error {
	if box == nil {
		return cmd.Start()
	}
	return onThread(func() error { return start(cmd, box) })
}

// start changes the calling thread, from which the process inherits.
func start(cmd *exec.Cmd, box *ipc.Sandbox) (err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	attr := cmd.SysProcAttr
	var group *os.File
	if box.Cgroup != "" {
		// Opened before this thread's mounts become read-only.
		if group, err = os.OpenFile(filepath.Join(box.Cgroup, "cgroup.procs"), os.O_WRONLY, 0); err != nil {
			return fmt.Errorf("open the guest's control group: %w", err)
		}
		defer func() { err = errors.Join(err, group.Close()) }()
	}
	if box.PrivateNetwork {
		if err := enterNetwork(); err != nil {
			return err
		}
	}
	if box.PrivateDevices {
		if err := enterMounts(box.Devices, box.UID); err != nil {
			return err
		}
		if cmd.Env == nil {
			cmd.Env = os.Environ()
		}
		cmd.Env = append(cmd.Env, "HOME="+scratch, "TMPDIR="+scratch)
	}
	if box.UID != 0 {
		if err := raisePriority(); err != nil {
			return err
		}
		attr.Credential = &syscall.Credential{Uid: uint32(box.UID), Gid: uint32(box.GID), Groups: box.Groups}
	}
	if err := cmd.Start(); err != nil || group == nil {
		return err
	}
	// clone3 could start it there, but a seccomp filter can't see clone3's flags: systemd's
	// RestrictNamespaces= has it answered as if the kernel lacked it.
	if _, err := group.WriteString(strconv.Itoa(cmd.Process.Pid)); err != nil {
		return errors.Join(fmt.Errorf("move the process to the guest's control group: %w", err), cmd.Process.Kill(), ignoreExit(cmd.Wait()))
	}
	return nil
}

// ignoreExit returns err unless it says how a process ended.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// Executors run at a higher priority than other programs. Users other than root may raise their own
// priority up to RLIMIT_NICE, and a process inherits its thread's.
const (
	niceness  = -15
	niceLimit = 20 - niceness // in the units of RLIMIT_NICE
)

// raisePriority gives the calling thread the executors' priority if its children could not raise
// theirs. Without the right to do so it does nothing.
func raisePriority() error {
	var may unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NICE, &may); err != nil {
		return fmt.Errorf("read the limit of niceness: %w", err)
	}
	if may.Cur >= niceLimit {
		return nil
	}
	err := unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// onThread runs f on a thread that ends with f. That can't be the process's first thread, which
// would remain.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // f's changes to the thread are not undone
		if unix.Gettid() == unix.Getpid() {
			done <- onThread(f) // on another thread, because this one is locked
			runtime.UnlockOSThread()
			return
		}
		done <- f()
	}()
	return <-done
}
