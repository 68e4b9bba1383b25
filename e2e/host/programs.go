package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Tags are the build tags of the Makefile. With those of package net, a package has one compilation
// with and without cgo.
const Tags = "libvirt_dlopen,netgo,osusergo"

var built struct {
	sync.Mutex
	dir      string
	programs []string
}

// ProgramsVariable is the environment variable with the directory of programs that `make build` has
// built from this tree. `make test` sets it, so that not each package's tests link them again.
const ProgramsVariable = "VGPUD_TEST_PROGRAMS"

// Programs returns a directory with vgpud, vgpuctl and the named programs of this tree. It is made
// once per test binary, with programs from [ProgramsVariable] or built as `make build` does. A
// package's TestMain must call [Cleanup] last.
func Programs(others ...string) (string, error) {
	built.Lock()
	defer built.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "vgpud-e2e-")
		if err != nil {
			return "", err
		}
		// Guests' processes have users of their own, which execute the programs.
		if err := os.Chmod(dir, 0o711); err != nil {
			return "", err
		}
		built.dir = dir
	}
	from := os.Getenv(ProgramsVariable)
	var ready, static, dynamic []string
	for _, name := range append([]string{"vgpud", "vgpuctl"}, others...) {
		switch {
		case slices.Contains(built.programs, name):
		case from != "":
			ready = append(ready, name)
		case name == "vgpu-libvirt", name == "vgpu-nvml": // these use C libraries
			dynamic = append(dynamic, name)
		default:
			static = append(static, name)
		}
	}
	return built.dir, errors.Join(linkPrograms(from, ready), buildPrograms("0", static), buildPrograms("1", dynamic))
}

// linkPrograms links programs of a directory into the test binary's own, because tests find
// processes by their programs' paths, and guests' processes may not reach the other directory.
func linkPrograms(from string, names []string) error {
	for _, name := range names {
		source, program := filepath.Join(from, name), filepath.Join(built.dir, name)
		// go test's cache notices what a test has asked for with Stat.
		_, err := os.Stat(source)
		if err == nil {
			err = os.Link(source, program)
		}
		if errors.Is(err, unix.EXDEV) {
			err = copyProgram(source, program)
		}
		if err != nil {
			return fmt.Errorf("%s: %w; `make build` builds the programs", ProgramsVariable, err)
		}
		built.programs = append(built.programs, name)
	}
	return nil
}

// copyProgram copies a program to another file system.
func copyProgram(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// buildPrograms builds programs with or without cgo.
func buildPrograms(cgo string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	args := []string{"build", "-tags", Tags, "-o", built.dir + "/"}
	for _, name := range names {
		args = append(args, "vgpud/cmd/"+name)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(names, ", "), err, out)
	}
	built.programs = append(built.programs, names...)
	return nil
}

// Cleanup removes the built programs. A package's TestMain calls it last.
func Cleanup() error {
	built.Lock()
	defer built.Unlock()
	dir := built.dir
	built.dir, built.programs = "", nil
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}
