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

// plan is what the first process of a house makes, in JSON on standard input.
type plan struct {
	Base  string            // a directory of the test's own
	Root  string            // what the house's root directory is like, and stays
	Binds map[string]string // directories of the house, and of the machine
	Files map[string]string // of the house, and what is in them
	Links map[string]string
}

// runInit is the house's first process: it makes the root directory and then
// buries those whose parents have gone.
func runInit() error {
	var p plan
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		return err
	}
	if err := p.build(); err != nil {
		return fmt.Errorf("make the house: %w", err)
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

// build makes the root directory and goes into it.
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
	// Without what is mounted in it: the machine's control groups.
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
