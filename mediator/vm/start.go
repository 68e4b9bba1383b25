package vm

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
)

// started is an executor process that was started, with this end of its connection.
type started struct {
	cmd    *exec.Cmd
	conn   *ipc.Conn
	output *Output
}

// launch starts an executor process, which waits for its first message. log gets its output.
func (b *executors) launch(log *slog.Logger) (_ *started, err error) {
	conn, end, err := ipc.Pair()
	if err != nil {
		return nil, err
	}
	output, stderr, err := CaptureOutput(log, "executor output")
	if err != nil {
		return nil, errors.Join(err, conn.Close(), end.Close())
	}
	cmd := b.command()
	cmd.Stdout, cmd.Stderr = stderr, stderr
	cmd.ExtraFiles = []*os.File{end}
	// A signal to the terminal's process group is `vgpud vm`'s to handle.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	if cerr := errors.Join(end.Close(), stderr.Close()); err == nil {
		err = cerr
	}
	if err != nil {
		_, oerr := output.End()
		return nil, errors.Join(fmt.Errorf("start %s: %w", cmd.Path, err), conn.Close(), oerr)
	}
	return &started{cmd, conn, output}, nil
}

// pid returns the process's number. A nil s has none, 0.
func (s *started) pid() int {
	if s == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// end ends a process that serves no context. A nil s is none.
func (s *started) end() error {
	if s == nil {
		return nil
	}
	err := s.conn.Close() // the process ends when its connection does
	_ = wait(s.cmd)       // how it ended does not matter
	_, oerr := s.output.End()
	return errors.Join(err, oerr)
}
