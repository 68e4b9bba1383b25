package floors

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "vgpud"

// room is a part of the house. A package belongs to the room with the longest
// matching path.
type room struct {
	path  string
	floor int
}

// rooms is the plan. Rooms of one floor don't see each other.
var rooms = []room{
	{"clock", 1},
	{"internal", 1},
	{"scripts", 1},
	{"ptx", 1},
	{"vfio", 1},
	{"mediator/vgpu/abi", 1},
	{"fairshare", 1},
	{"gpu/corpus", 1},
	{"accounting", 2},
	{"gpu", 3},
	{"mediator", 4},
	{"guestagent", 4},
	{"cmd/vgpud/workload", 5},
	{"cmd/vgpud/child", 5},
	{"cmd", 6},
	{"e2e", 7},
}

// forbidden lists imports that a package must not have, even indirectly, with
// the reason for each.
var forbidden = []struct {
	from, to, reason string
}{
	{"fairshare", "net", "a policy is a pure function of state"},
	{"fairshare", "os", "a policy is a pure function of state"},
	{"fairshare", "vgpud/clock", "a policy is told the time"},
	{"ptx", "os", "a parser reads what it is given"},
	{"ptx", "net", "a parser reads what it is given"},
	{"gpu/soft/simt", "net", "executing a kernel needs no I/O"},
	{"gpu/soft/arith", "os", "arithmetic needs no I/O"},
	{"gpu/soft/machine", "net", "the machine's model is told the time and does no I/O"},
	{"mediator/vgpu/abi", "net", "host and guest agree on bytes, not on transport"},
	{"guestagent", "vgpud/mediator", "a guest carries no host code"},
	{"guestagent", "vgpud/gpu", "a guest carries no host code"},
	{"cmd/vgpu-agent", "vgpud/mediator", "a guest carries no host code"},
	{"cmd/vgpu-agent", "vgpud/gpu", "a guest carries no host code"},
	{"guestagent", "vgpud/accounting", "a guest carries no host code"},
	{"mediator/vgpu", "vgpud/ptx", "the process that serves the device parses no guest code"},
	{"mediator/vgpu", "vgpud/gpu", "the process that serves the device touches no GPU"},
	{"mediator/vm", "vgpud/ptx", "the process that serves the device parses no guest code"},
	{"mediator/executor/preemption", "os", "what is left of a launch is a pure function of what was read back"},
	{"mediator/executor/preemption", "vgpud/clock", "what is left of a launch is a pure function of what was read back"},
	{"mediator/ipc/slotstate", "vgpud/clock", "a launch's states are told the time"},
	{"guestagent/preempt", "net", "PTX in, PTX out"},
	{"cmd/vgpu-hook", "vgpud/mediator/libvirt", "libvirt waits for its hook, which would wait for libvirt"},
	{"cmd/vgpu-hook", "vgpud/mediator/libvirt/qmp", "libvirt waits for its hook, which would wait for libvirt"},
	{"cmd/vgpud", "vgpud/mediator/libvirt/binding", "what has C in it is a program of its own"},
	{"cmd/vgpuctl", "vgpud/mediator/libvirt/binding", "what has C in it is a program of its own"},
	{"cmd/vgpud", "vgpud/gpu/nvidia/inventory/binding", "what has C in it is a program of its own"},
	{"cmd/vgpuctl", "vgpud/gpu/nvidia/inventory/binding", "what has C in it is a program of its own"},
	{"vfio", "vgpud/mediator", "the protocol knows no device"},
	{"cmd/vgpud/workload", "vgpud/mediator", "a guest carries no host code"},
	{"cmd/vgpud/workload", "vgpud/gpu", "a guest carries no host code"},
	{"cmd/vgpud/demoguest", "vgpud/mediator", "a guest carries no host code"},
	{"cmd/vgpud/demoguest", "vgpud/gpu", "a guest carries no host code"},
}

// allowed lists exceptions to forbidden prefixes.
var allowed = []string{
	"vgpud/guestagent -> vgpud/mediator/vgpu/abi",
	"vgpud/cmd/vgpu-agent -> vgpud/mediator/vgpu/abi",
	"vgpud/cmd/vgpud/workload -> vgpud/mediator/vgpu/abi",
	"vgpud/cmd/vgpud/demoguest -> vgpud/mediator/vgpu/abi",
	"vgpud/guestagent -> vgpud/gpu/corpus",
	"vgpud/cmd/vgpud/workload -> vgpud/gpu/corpus",
	"vgpud/cmd/vgpud/demoguest -> vgpud/gpu/corpus",
	"vgpud/cmd/vgpu-hook -> vgpud/mediator/libvirt/domain",
}

// pairs lists imports by tests from another room of the same floor or of a higher one,
// with the reason for each.
var pairs = []struct {
	from, to, reason string
}{
	{"mediator", "vgpud/guestagent/driver", "the device and the daemon are held to what a guest's driver sees of them: a second driver would only agree with itself"},
}

// pkg is what the go command says of a package, and what the files import that it leaves
// out.
type pkg struct {
	ImportPath     string
	Dir            string
	Imports        []string
	TestImports    []string // of tests inside the package
	XTestImports   []string // of tests outside of it
	IgnoredGoFiles []string // whose tags or system are others than those at hand
}

// tests returns what the package's tests import.
func (p pkg) tests() []string { return slices.Concat(p.TestImports, p.XTestImports) }

// list asks the go command for all packages of the module, and adds what the files import
// that are left out here: those of the race detector, of C's libraries, of other systems.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,IgnoredGoFiles", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			t.Fatalf("%v: %v\n%s", cmd, err, ee.Stderr)
		}
		t.Fatalf("%v: %v", cmd, err)
	}
	var pkgs []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("decode the package list: %v", err)
		}
		for _, name := range p.IgnoredGoFiles {
			if strings.HasSuffix(name, "_test.go") {
				p.TestImports = append(p.TestImports, importsOf(t, filepath.Join(p.Dir, name))...)
			} else {
				p.Imports = append(p.Imports, importsOf(t, filepath.Join(p.Dir, name))...)
			}
		}
		pkgs = append(pkgs, p)
	}
}

// importsOf returns what a file imports.
func importsOf(t *testing.T, path string) (paths []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, imp := range file.Imports {
		p, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			t.Fatalf("%s: import %s: %v", path, imp.Path.Value, err)
		}
		paths = append(paths, p)
	}
	return paths
}

// closure returns what is imported by those of paths that are packages of the module, even
// indirectly, and paths.
func closure(paths []string, of map[string][]string) []string {
	seen := make(map[string]bool)
	var add func(paths []string)
	add = func(paths []string) {
		for _, p := range paths {
			if !seen[p] {
				seen[p] = true
				add(of[p])
			}
		}
	}
	add(paths)
	return slices.Sorted(maps.Keys(seen))
}

// TestFilesOfOtherBuildsAreRead: what is built only with libvirt's library is held to the plan
// without it, too.
func TestFilesOfOtherBuildsAreRead(t *testing.T) {
	const binding, library = module + "/mediator/libvirt/binding", "libvirt.org/go/libvirt"
	for _, p := range list(t) {
		if p.ImportPath == binding && slices.Contains(p.Imports, library) {
			return
		}
	}
	t.Errorf("%s is not seen to import %s", binding, library)
}

// under says whether path is prefix or beneath it.
func under(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// roomOf finds a package's room by its longest path.
func roomOf(path string) (room, bool) {
	var best room
	for _, r := range rooms {
		if under(path, module+"/"+r.path) && len(r.path) > len(best.path) {
			best = r
		}
	}
	return best, best.path != ""
}

// climbs returns the imports that are neither of a lower floor nor of the package's room.
func climbs(from room, imports []string) []string {
	return slices.DeleteFunc(slices.Clone(imports), func(imp string) bool {
		to, ok := roomOf(imp)
		return !ok || to == from || to.floor < from.floor
	})
}

func TestNoImportClimbs(t *testing.T) {
	used := make(map[string]bool)
	for _, p := range list(t) {
		from, ok := roomOf(p.ImportPath)
		if !ok {
			t.Errorf("%s is in no room of the plan", p.ImportPath)
			continue
		}
		for _, imp := range climbs(from, p.Imports) {
			t.Errorf("%s (floor %d) imports %s", p.ImportPath, from.floor, imp)
		}
		for _, imp := range climbs(from, p.tests()) {
			paired := false
			for _, e := range pairs {
				if under(p.ImportPath, module+"/"+e.from) && under(imp, e.to) {
					paired, used[e.from+" -> "+e.to] = true, true
				}
			}
			if !paired {
				t.Errorf("a test of %s (floor %d) imports %s", p.ImportPath, from.floor, imp)
			}
		}
	}
	for _, e := range pairs {
		if !used[e.from+" -> "+e.to] {
			t.Errorf("no test of %s imports %s any more: it needs no exception", e.from, e.to)
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	pkgs := list(t)
	of := make(map[string][]string)
	for _, p := range pkgs {
		of[p.ImportPath] = p.Imports
	}
	for _, f := range forbidden {
		for _, p := range pkgs {
			if !under(p.ImportPath, module+"/"+f.from) || (f.from == "mediator/vgpu" && p.ImportPath == module+"/mediator/vgpu/abi") {
				continue
			}
			// The standard library's own use of net or os is not ours, and tests may read
			// files.
			imports := p.Imports
			if strings.HasPrefix(f.to, module) {
				imports = closure(slices.Concat(p.Imports, p.tests()), of)
			}
			for _, imp := range imports {
				if imp != f.to && !(strings.HasPrefix(f.to, module) && under(imp, f.to)) {
					continue
				}
				if slices.ContainsFunc(allowed, func(a string) bool {
					from, to, _ := strings.Cut(a, " -> ")
					return under(p.ImportPath, from) && under(imp, to)
				}) {
					continue
				}
				t.Errorf("%s imports %s: %s", p.ImportPath, imp, f.reason)
			}
		}
	}
}

// archived lists modules that nobody maintains any more, and what took their place.
// Those that we use may still need them.
var archived = map[string]string{
	"gopkg.in/yaml.v3": "go.yaml.in/yaml/v3",
}

func TestNothingArchivedIsImported(t *testing.T) {
	for _, p := range list(t) {
		for _, imp := range slices.Concat(p.Imports, p.tests()) {
			if now := archived[imp]; now != "" {
				t.Errorf("%s imports %s, which is archived: %s took its place", p.ImportPath, imp, now)
			}
		}
	}
}

// TestEveryPackageIsDescribed holds docs/architecture.md to what there is: each
// package is named in it, in backquotes, and what it calls planned is not there.
func TestEveryPackageIsDescribed(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	built, planned, ok := strings.Cut(string(text), "\n- Not there yet:")
	if !ok {
		t.Fatal("docs/architecture.md does not say what is not there yet")
	}
	planned, _, _ = strings.Cut(planned, "\n- ")
	for _, p := range list(t) {
		name := "`" + strings.TrimPrefix(p.ImportPath, module+"/") + "`"
		if !strings.Contains(built, name) {
			t.Errorf("docs/architecture.md does not name %s", name)
		}
		if strings.Contains(planned, name) {
			t.Errorf("docs/architecture.md says that %s is not there yet", name)
		}
	}
}

// TestGlossaryNamesPackages checks that each row of docs/glossary.md ends with a package of the
// module, in backquotes, and that no term has two rows.
func TestGlossaryNamesPackages(t *testing.T) {
	text, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	pkgs := list(t)
	terms := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| term |") {
			continue
		}
		term, name := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[3])
		if terms[term] {
			t.Errorf("%q has two rows", term)
		}
		terms[term] = true
		path, ok := strings.CutPrefix(strings.TrimSuffix(name, "`"), "`")
		if !ok || !slices.ContainsFunc(pkgs, func(p pkg) bool { return p.ImportPath == module+"/"+path }) {
			t.Errorf("%q: no package %s", term, name)
		}
	}
	if len(terms) < 20 {
		t.Errorf("%d terms, want the twenty or so of the project", len(terms))
	}
}

// TestDocsNameTests checks that every test that a page of docs/ names as evidence exists.
func TestDocsNameTests(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages of docs: %v, %v", pages, err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`")
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	exists := make(map[string]bool)
	for _, p := range list(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declared.FindAllSubmatch(text, -1) {
				exists[string(m[1])] = true
			}
		}
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllSubmatch(text, -1) {
			if !exists[string(m[1])] {
				t.Errorf("%s names %s, which no package has", filepath.Base(page), m[1])
			}
		}
	}
}

// TestEveryRoomExists keeps the plan itself honest.
func TestEveryRoomExists(t *testing.T) {
	pkgs := list(t)
	for _, r := range rooms {
		if !slices.ContainsFunc(pkgs, func(p pkg) bool { return under(p.ImportPath, module+"/"+r.path) }) {
			t.Errorf("the plan names %s, but no package is there", r.path)
		}
	}
}
