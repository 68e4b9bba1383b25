package qemu

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// run starts QEMU so that it is killed when this process ends. The kernel regards the thread that
// started a child as its parent, so a goroutine locks its thread from before the start until the
// end.
func (v *VM) run() error {
	// QEMU does not receive interrupts from the terminal; this process handles them.
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

// Kill kills QEMU with SIGKILL, and waits for it.
func (v *VM) Kill() error {
	if err := v.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-v.exited
	return nil
}
