package operators

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Packages are the packages of one version, for Debian and RPM.
type Packages struct{ dir string }

// Built returns the packages that `make packages` built from this tree.
func Built(tb testing.TB) Packages {
	tb.Helper()
	dir, err := filepath.Abs(filepath.Join(Tree, "bin", "packages"))
	if err != nil {
		tb.Fatal(err)
	}
	return Packages{dir}
}

// Earlier returns Debian's packages of the same content with a lower version than any that `make
// packages` gives, to be upgraded from.
func (p Packages) Earlier(tb testing.TB, names ...string) Packages {
	tb.Helper()
	e := Packages{tb.TempDir()}
	for _, name := range names {
		cmd := exec.Command("sh", "-ec", `
			dpkg-deb -R "$1" unpacked
			sed -i 's/^Version: .*/Version: 0.0.0~earlier/' unpacked/DEBIAN/control
			dpkg-deb --root-owner-group -Znone -b unpacked .
			rm -r unpacked`, "sh", p.Deb(tb, name))
		cmd.Dir = e.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			tb.Fatalf("build an earlier package: %v\n%s", err, out)
		}
	}
	return e
}

// Tree is the root of this source tree, relative to the directory of each package of tests.
const Tree = "../../.."

// Deb returns the path of Debian's package of that name.
func (p Packages) Deb(tb testing.TB, name string) string {
	tb.Helper()
	return p.file(tb, name+"_*.deb")
}

// RPM returns the path of the RPM of that name.
func (p Packages) RPM(tb testing.TB, name string) string {
	tb.Helper()
	return p.file(tb, name+"-[0-9]*.rpm")
}

func (p Packages) file(tb testing.TB, pattern string) string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(p.dir, pattern))
	if err != nil {
		tb.Fatal(err)
	}
	if len(files) != 1 {
		tb.Fatalf("%s in %s: found %q, want one file: run `make packages` first", pattern, p.dir, strings.Join(files, " "))
	}
	return files[0]
}
