package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"vgpud/internal/strictyaml"
)

// host is the machine.
type host struct {
	root  string // "/", except in tests
	owner uint32 // the user whose files are trusted: root, except in tests
}

// config is /etc/vgpud/qemu.yaml. All keys are optional, and so is the file.
type config struct {
	// QEMU is the path of the real QEMU.
	QEMU string `yaml:"qemu"`
	// RunDir is the daemon's run_dir.
	RunDir string `yaml:"run_dir"`
}

const configPath = "/etc/vgpud/qemu.yaml"

// emulators lists where distributions have QEMU for x86-64: Debian's and Fedora's name, and RHEL's.
var emulators = []string{"/usr/bin/qemu-system-x86_64", "/usr/libexec/qemu-kvm", "/usr/bin/qemu-kvm"}

// config reads the configuration.
func (h host) config() (config, error) {
	c := config{RunDir: "/run/vgpud"}
	text, err := h.trustedFile(configPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return c, err
	}
	if _, err := strictyaml.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("configuration: %w", strictyaml.Named(configPath, err))
	}
	for key, path := range map[string]string{"qemu": c.QEMU, "run_dir": c.RunDir} {
		if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != path) {
			return c, fmt.Errorf("configuration: %s: %s: %q: want an absolute path in its shortest form", configPath, key, path)
		}
	}
	return c, nil
}

// emulator returns the path of the real QEMU: the configured one, or the first that is there. This
// program itself is none, under whichever name.
func (h host) emulator(configured string) (string, error) {
	candidates := emulators
	if configured != "" {
		candidates = []string{configured}
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	for _, path := range candidates {
		st, err := os.Stat(filepath.Join(h.root, path))
		if err == nil && !os.SameFile(st, self) {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no QEMU but this program among %s: name QEMU's path as qemu in %s", strings.Join(candidates, ", "), configPath)
}

// arguments returns what the hook wrote for a domain.
func (h host) arguments(runDir, uuid string) ([]string, error) {
	path := filepath.Join(runDir, "domains", uuid, "qemu.args")
	text, err := h.trustedFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	args, err := parseArguments(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: start the domain again, for which the libvirt hook writes it anew", path, err)
	}
	return args, nil
}

// trustedFile reads a file that nobody but the owner can have written or put there. No part of its
// path may be a link.
func (h host) trustedFile(path string) (_ []byte, err error) {
	dir, err := unix.Open(h.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", h.root, err)
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, part := range parts {
		last := i == len(parts)-1
		flags := unix.O_PATH | unix.O_DIRECTORY
		if last {
			flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
		}
		next, err := unix.Openat(dir, part, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(dir) // it was only a place
		at := "/" + strings.Join(parts[:i+1], "/")
		switch {
		case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
			return nil, fmt.Errorf("%s is a link, or no directory where one is expected: remove it", at)
		case errors.Is(err, unix.EACCES):
			return nil, fmt.Errorf("read %s as user %d: %w: QEMU's user must be able to", at, os.Geteuid(), err)
		case err != nil:
			return nil, fmt.Errorf("open %s: %w", at, err)
		}
		dir = next
		var st unix.Stat_t
		if err := unix.Fstat(dir, &st); err != nil {
			_ = unix.Close(dir) // it was not read yet
			return nil, fmt.Errorf("look at %s: %w", at, err)
		}
		if err := trusted(&st, h.owner, last); err != nil {
			_ = unix.Close(dir) // it was not read yet
			return nil, fmt.Errorf("%s %w", at, err)
		}
	}
	f := os.NewFile(uintptr(dir), path)
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return text, nil
}

// trusted returns why a file, or a directory on the way to it, is not one that only its owner can
// have made, or nil.
func trusted(st *unix.Stat_t, owner uint32, file bool) error {
	switch kind := st.Mode & unix.S_IFMT; {
	case file && kind != unix.S_IFREG, !file && kind != unix.S_IFDIR:
		return errors.New("is of another kind than expected: remove it")
	case st.Uid != owner && st.Uid != 0:
		return fmt.Errorf("belongs to user %d: want user %d, as anybody else could have QEMU do anything", st.Uid, owner)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("has the mode %04o: want one by which only its owner can write", st.Mode&0o7777)
	case file && st.Nlink != 1:
		return fmt.Errorf("has %d names: want one", st.Nlink)
	case file && st.Size > maxFile:
		return fmt.Errorf("has %d bytes: want %d at most", st.Size, maxFile)
	}
	return nil
}
