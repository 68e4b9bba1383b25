package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"vgpud/mediator/api"
)

// domainsDir is the directory, in the daemon's, of the sockets of libvirt domains:
// domains/UUID/gpuN.sock. Their paths are in the domains' definitions, so they depend on nothing
// that changes.
const domainsDir = "domains"

// maxSocketPath is the longest path that fits sockaddr_un.
const maxSocketPath = 107

var domainSocketName = regexp.MustCompile(`^gpu(0|[1-9][0-9]?)\.sock$`)

// socketOf returns the socket that a guest's VMM is to connect to. uuid is the domain whose
// directory that is in, empty if it is in none.
func (s *Service) socketOf(spec *api.VMSpec) (path, uuid string, err error) {
	if spec.Socket == "" {
		path = filepath.Join(s.guestDir(spec.Name), "vfio-user.sock")
	} else if path, uuid = spec.Socket, s.domainOf(spec.Socket); uuid == "" {
		return "", "", fmt.Errorf("socket %q: want %s: %w", spec.Socket,
			filepath.Join(s.runDir(), domainsDir, "UUID", "gpuN.sock"), api.ErrInvalid)
	}
	if uuid != "" && spec.DomainUUID != "" && uuid != spec.DomainUUID {
		return "", "", fmt.Errorf("socket %q: the domain's UUID is %s: %w", spec.Socket, spec.DomainUUID, api.ErrInvalid)
	}
	if len(path) > maxSocketPath {
		return "", "", fmt.Errorf("socket %q: a socket's path has at most %d bytes, this one has %d; configure a shorter run_dir: %w",
			path, maxSocketPath, len(path), api.ErrInvalid)
	}
	return path, uuid, nil
}

// runDir returns the daemon's directory as an absolute path.
func (s *Service) runDir() string {
	dir, err := filepath.Abs(s.o.Config.RunDir)
	if err != nil {
		return s.o.Config.RunDir // then no path is found to be in it
	}
	return dir
}

// domainOf returns the UUID in the path of a domain's socket, or an empty string if it is no such
// path. The path must be in its canonical form.
func (s *Service) domainOf(path string) (uuid string) {
	dir, name := filepath.Split(path)
	uuid = filepath.Base(dir)
	if api.CheckUUID(uuid) != nil || !domainSocketName.MatchString(name) ||
		path != filepath.Join(s.runDir(), domainsDir, uuid, name) {
		return ""
	}
	return uuid
}

// makeDomainDir makes a domain's directory. Other users may pass through it to sockets whose names
// they know.
func (s *Service) makeDomainDir(uuid string) (err error) {
	root, err := os.OpenRoot(s.o.Config.RunDir)
	if err != nil {
		return fmt.Errorf("open the daemon's directory: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, dir := range []string{domainsDir, filepath.Join(domainsDir, uuid)} {
		switch err := root.Mkdir(dir, 0o711); {
		case err == nil:
			// The umask may have removed bits.
			if err := root.Chmod(dir, 0o711); err != nil {
				return fmt.Errorf("make the domain's directory: %w", err)
			}
		case !errors.Is(err, fs.ErrExist):
			return fmt.Errorf("make the domain's directory: %w", err)
		}
		st, err := root.Lstat(dir)
		if err != nil {
			return fmt.Errorf("check the domain's directory: %w", err)
		}
		if !isPrivateDir(st) {
			return fmt.Errorf("%s: want a directory of the daemon's own, which no other user may write to; remove it",
				filepath.Join(s.o.Config.RunDir, dir))
		}
	}
	return nil
}

// isPrivateDir reports whether a file is a directory that only this process's user can write to.
func isPrivateDir(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && st.IsDir() && int(sys.Uid) == os.Geteuid() && st.Mode().Perm()&0o022 == 0
}

// removeDomainSocket removes a domain's socket, and the domain's directory with the last one,
// unless another socket is about to be made.
//
// Preconditions: s.admission is held.
func (s *Service) removeDomainSocket(path string) (err error) {
	uuid := s.domainOf(path)
	if uuid == "" {
		return nil
	}
	root, err := os.OpenRoot(s.o.Config.RunDir)
	if err != nil {
		return fmt.Errorf("open the daemon's directory: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	dir := filepath.Join(domainsDir, uuid)
	if err := root.Remove(filepath.Join(dir, filepath.Base(path))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a domain's socket: %w", err)
	}
	for _, p := range s.pending {
		if p.uuid == uuid {
			return nil
		}
	}
	return removeEmpty(root, dir)
}

// removeEmpty removes a directory if it is empty.
func removeEmpty(root *os.Root, dir string) error {
	err := root.Remove(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
		return nil
	}
	return fmt.Errorf("remove a domain's directory: %w", err)
}

// removeStaleSockets removes what guests of an earlier daemon that are gone have left in the
// domains' directories. If there are guests whose sockets are not known, it leaves sockets that a
// process listens on.
func (s *Service) removeStaleSockets() (err error) {
	used, unknown := make(map[string]bool), false
	s.mu.RLock()
	for _, g := range s.guests {
		used[g.spec.Socket] = true
	}
	for _, t := range s.silent {
		if t.saved == nil {
			unknown = true
			continue
		}
		used[t.saved.Spec.Socket] = true
	}
	s.mu.RUnlock()
	paths, err := filepath.Glob(filepath.Join(s.runDir(), domainsDir, "*", "*"))
	if err != nil {
		return fmt.Errorf("look for sockets of domains: %w", err)
	}
	s.admission.Lock()
	defer s.admission.Unlock()
	for _, path := range paths {
		if used[path] || s.domainOf(path) == "" || unknown && listening(path) {
			continue
		}
		if err := s.removeDomainSocket(path); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(s.o.Config.RunDir)
	if err != nil {
		return fmt.Errorf("open the daemon's directory: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	dirs, err := filepath.Glob(filepath.Join(s.runDir(), domainsDir, "*"))
	for _, dir := range dirs {
		if api.CheckUUID(filepath.Base(dir)) == nil {
			err = errors.Join(err, removeEmpty(root, filepath.Join(domainsDir, filepath.Base(dir))))
		}
	}
	return err
}

// listening reports whether a process may listen on a socket. That this process is not allowed to
// connect to a VMM's socket says nothing about it.
func listening(path string) bool {
	c, err := net.Dial("unix", path)
	if err != nil {
		return !errors.Is(err, syscall.ECONNREFUSED)
	}
	_ = c.Close() // nothing was sent
	return true
}
