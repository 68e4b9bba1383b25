package main

import (
	"errors"
	"os"
	"path/filepath"
)

// A toolchain is what scripts/suite-deps.sh unpacked: compilers that run on this machine with their
// own libraries, and the suites' sources.
type toolchain struct {
	dir          string
	root         string // the packages' files
	libs         string // links to root's shared libraries, without the C library
	gccSource    string
	halideSource string
	version      string // changes with the packages

	includes []string // this project's headers: the driver's and the runtime's
	library  string   // the directory of this project's libraries
}

// openToolchain finds the toolchain: it is in $VGPUD_SUITE_DEPS or in the user's cache. tree is this
// project's source, and bin has its programs.
func openToolchain(tree, bin string) (*toolchain, error) {
	dir := os.Getenv("VGPUD_SUITE_DEPS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(cache, "vgpud", "suites")
	}
	c := &toolchain{
		dir: dir, root: filepath.Join(dir, "root"), libs: filepath.Join(dir, "libs"),
		gccSource: filepath.Join(dir, "src", "gcc"), halideSource: filepath.Join(dir, "src", "halide"),
		includes: []string{filepath.Join(tree, "cmd", "libcuda", "include"), filepath.Join(tree, "cmd", "libcudart", "include")},
		library:  filepath.Join(bin, "lib"),
	}
	manifest, err := os.ReadFile(filepath.Join(dir, "manifest"))
	if err != nil {
		return nil, errors.Join(errors.New("run scripts/suite-deps.sh first"), err)
	}
	c.version = string(manifest)
	return c, nil
}

// env returns the environment for programs of root and those built by its compilers, with further
// directories of libraries before root's.
func (c *toolchain) env(libs ...string) []string {
	path := c.libs
	for i := len(libs) - 1; i >= 0; i-- {
		path = libs[i] + ":" + path
	}
	return append(os.Environ(), "LD_LIBRARY_PATH="+path, "LC_ALL=C")
}
