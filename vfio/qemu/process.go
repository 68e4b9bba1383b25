package qemu

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// run starts QEMU, which dies with this process. The kernel takes the thread
// that started a child for its parent, so a goroutine keeps its thread from
// before the start until the end.
func (v *VM) run() error {
	// An interrupt at the terminal is this process's to act on.
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := v.cmd.Start()
		started <- err
		if err == nil {
			v.err = v.cmd.Wait()
		}
		close(v.exited)
	}()
	return <-started
}

// Kill ends QEMU at once, as kill -9 does, and waits for it.
func (v *VM) Kill() error {
	if err := v.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-v.exited
	return nil
}
