package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
)

// Start starts a guest's process in its cell; the zero cell is no confinement. What
// it has in SysProcAttr is kept.
func Start(cmd *exec.Cmd, cell *ipc.Cell) error {
	if cell == nil {
		return cmd.Start()
	}
	return onThread(func() error { return start(cmd, cell) })
}

// start does so on a thread of its own, which the process inherits from.
func start(cmd *exec.Cmd, cell *ipc.Cell) (err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	attr := cmd.SysProcAttr
	if cell.PrivateDevices {
		if err := enterMounts(cell.Devices, cell.UID); err != nil {
			return err
		}
		if cmd.Env == nil {
			cmd.Env = os.Environ()
		}
		cmd.Env = append(cmd.Env, "HOME="+scratch, "TMPDIR="+scratch)
	}
	if cell.UID != 0 {
		if err := prefer(); err != nil {
			return err
		}
		attr.Credential = &syscall.Credential{Uid: uint32(cell.UID), Gid: uint32(cell.GID), Groups: cell.Groups}
	}
	if cell.Cgroup != "" {
		dir, err := os.Open(cell.Cgroup)
		if err != nil {
			return fmt.Errorf("open the guest's control group: %w", err)
		}
		defer func() { err = errors.Join(err, dir.Close()) }()
		attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	}
	return cmd.Start()
}

// Executors have precedence over other programs. Users but root may give it to
// themselves as far as a limit goes, and a process has its thread's from birth.
const (
	niceness  = -15
	niceLimit = 20 - niceness // as RLIMIT_NICE counts
)

// prefer gives the calling thread the executors' precedence where its children
// could not give it to themselves. A daemon that has none to give gives none.
func prefer() error {
	var may unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NICE, &may); err != nil {
		return fmt.Errorf("ask for the limit of niceness: %w", err)
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

// onThread runs f on a thread that ends with it. It is not the process's first
// thread, which would stay.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: what f does to the thread is not undone
		if unix.Gettid() == unix.Getpid() {
			done <- onThread(f) // on another, since this one is held
			runtime.UnlockOSThread()
			return
		}
		done <- f()
	}()
	return <-done
}
