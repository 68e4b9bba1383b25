// Package eventarea hands a guest's event area (BAR4), and nothing else of the guest's, to a program
// that stands in for a network card.
package eventarea

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"vgpud/internal/memfd"
	"vgpud/mediator/vgpu/abi"
)

// Variable is the environment variable with the number of the area's descriptor.
const Variable = "VGPU_EVENT_AREA"

// ErrNone means that the guest has no event area.
var ErrNone = errors.New("no event area: the guest's GPU has no event kernels, or its contexts float")

// Open opens the event area of the guest whose process is pid: a file in memory that it holds. It
// needs the rights to open that process's descriptors.
func Open(pid int) (*os.File, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, advise(fmt.Errorf("look for the event area: %w", err))
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "/memfd:vgpu-bar4") {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, advise(fmt.Errorf("open the event area: %w", err))
		}
		if err := memfd.Check(f, abi.EventAreaBytes); err != nil {
			return nil, errors.Join(fmt.Errorf("event area: %w", err), f.Close())
		}
		return f, nil
	}
	return nil, ErrNone
}

// advise says what to do about a missing right.
func advise(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; run as root", err)
	}
	return err
}

// Run runs a program with the area until it or ctx ends.
func Run(ctx context.Context, area *os.File, argv []string, out, errs io.Writer) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, errs
	Give(cmd, area)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", argv[0], err)
	}
	return nil
}

// Give has cmd get the area as its only descriptor beside the standard ones. cmd ends with its parent.
func Give(cmd *exec.Cmd, area *os.File) {
	cmd.ExtraFiles = []*os.File{area} // the first is 3
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, Variable+"=3")
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
}
