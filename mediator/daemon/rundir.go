package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/mediator/statefile"
)

// lockName is the file under run_dir that a running daemon has locked. It contains the daemon's PID.
const lockName = "daemon.lock"

// takeRunDir checks the directories of the daemon's sockets and locks run_dir for this daemon,
// until the file that it returns is closed or the process ends. A second daemon must not touch the
// guests of the first.
func takeRunDir(ctx context.Context, c clock.Clock, config *Config) (*os.File, error) {
	if err := checkDir("run_dir", config.RunDir); err != nil {
		return nil, err
	}
	if err := checkDir("the directory of socket", filepath.Dir(config.Socket)); err != nil {
		return nil, err
	}
	path := filepath.Join(config.RunDir, lockName)
	// Open for reading, since an open file that can be written keeps its file system from being
	// mounted read-only. Opening a pipe does not block.
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock run_dir %s: %w", config.RunDir, err)
	}
	if err := lock(ctx, c, f); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("another daemon%s has run_dir %s: end it first (systemctl stop vgpud; guests go on), or give this one a run_dir of its own", holder(path), config.RunDir)
		}
		return nil, errors.Join(err, f.Close())
	}
	// The PID is for messages alone, and a full disk has no room for it.
	_ = writePID(path)
	return f, nil
}

func writePID(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(fmt.Appendln(nil, os.Getpid()))
	return errors.Join(err, f.Close())
}

// lock locks a file, or returns EWOULDBLOCK if another daemon has it for longer than a process needs
// that a daemon forked just before it was killed.
func lock(ctx context.Context, c clock.Clock, f *os.File) error {
	for try := 1; ; try++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || try == listenRetries {
			return err
		}
		if err := clock.Tick(ctx, c, listenRetryEvery); err != nil {
			return err
		}
	}
}

// holder returns " (PID 17)" if the lock file has a PID.
func holder(path string) string {
	b, err := statefile.Read(path, 16)
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return fmt.Sprintf(" (PID %s)", pid)
	}
	return ""
}

// checkDir returns an error if there is no directory at path.
func checkDir(what, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %s does not exist: create it (mkdir -p -m 0711 %s), or configure another", what, path, path)
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case !info.IsDir():
		return fmt.Errorf("%s %s is not a directory", what, path)
	}
	return nil
}

// stateDir returns the directory of what outlives a reboot of the host.
func (s *Service) stateDir() string {
	if dir := s.o.Config.StateDir; dir != "" {
		return dir
	}
	return s.runDir()
}
