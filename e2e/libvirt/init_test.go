package libvirt

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// plan describes a machine for its first process, in JSON on standard input.
type plan struct {
	Base  string            // a directory of the test
	Root  string            // the template of the machine's root directory, which is not changed
	Binds map[string]string // directories of the machine, and of the host
	Files map[string]string // files of the machine, and their contents
	Links map[string]string
}

// runInit is the machine's first process: it makes the root directory and then reaps orphans.
func runInit() error {
	var p plan
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		return err
	}
	if err := p.build(); err != nil {
		return fmt.Errorf("make the machine: %w", err)
	}
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	if _, err := fmt.Println("ready"); err != nil {
		return err
	}
	for range died {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

// build makes the root directory and changes to it.
func (p *plan) build() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("have the mounts be ours: %w", err)
	}
	layers, root := filepath.Join(p.Base, "layers"), filepath.Join(p.Base, "root")
	upper, work := filepath.Join(layers, "upper"), filepath.Join(layers, "work")
	err := errors.Join(os.Mkdir(layers, 0o755), os.Mkdir(root, 0o755), unix.Mount("tmpfs", layers, "tmpfs", 0, ""),
		os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755))
	if err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", p.Root, upper, work)
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("overlay the root directory: %w", err)
	}
	at := func(path string) string { return filepath.Join(root, path) }
	if err := unix.Mount("proc", at("proc"), "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// Without its submounts, which are the host's control groups.
	if err := unix.Mount("/sys", at("sys"), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if err := unix.Mount("/dev", at("dev"), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for dir, from := range p.Binds {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			return err
		}
		if err := unix.Mount(from, at(dir), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	for path, text := range p.Files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(at(path)), 0o755), os.WriteFile(at(path), []byte(text), 0o644)); err != nil {
			return err
		}
	}
	for path, to := range p.Links {
		if err := errors.Join(os.MkdirAll(filepath.Dir(at(path)), 0o755), os.Symlink(to, at(path))); err != nil {
			return err
		}
	}
	return errors.Join(unix.Chroot(root), os.Chdir("/"))
}
