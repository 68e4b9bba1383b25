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

// layer is a folder whose packages may import one another and packages of layers with a smaller
// height. A package belongs to the layer with the longest matching path.
type layer struct {
	path   string
	height int
}

// layers is the plan. Layers of one height don't import each other.
var layers = []layer{
	{"clock", 1},
	{"internal", 0},
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

// rule forbids the packages under each of from to import any of to, with the reason. A package of
// this module must not import it indirectly either, nor in its tests.
type rule struct {
	from   []string // folders of this module
	to     []string // layers or packages of this module, or packages of the standard library
	reason string
}

var rules = []rule{
	{[]string{"fairshare"}, []string{"net", "os"}, "a policy is a pure function of state"},
	{[]string{"fairshare"}, []string{"clock"}, "a policy is given the time"},
	{[]string{"ptx"}, []string{"net", "os"}, "a parser reads what it is given"},
	{[]string{"gpu/soft/simt"}, []string{"net"}, "executing a kernel needs no I/O"},
	{[]string{"gpu/soft/arith"}, []string{"os"}, "arithmetic needs no I/O"},
	{[]string{"gpu/soft/machine"}, []string{"net"}, "the machine's model is given the time and does no I/O"},
	{[]string{"mediator/vgpu/abi"}, []string{"net"}, "host and guest agree on bytes, not on transport"},
	{[]string{"guestagent", "cmd/vgpu-agent", "cmd/vgpud/workload", "cmd/vgpud/demoguest"}, []string{"accounting", "gpu", "mediator"}, "a guest carries no host code"},
	{[]string{"mediator/vgpu", "mediator/vm"}, []string{"ptx"}, "the process that serves the device parses no guest code"},
	{[]string{"mediator/vgpu"}, []string{"gpu"}, "the process that serves the device touches no GPU"},
	{[]string{"mediator/executor/preemption"}, []string{"clock", "os"}, "what remains of a launch is a pure function of what was read back"},
	{[]string{"mediator/scheduler", "mediator/launchqueue"}, []string{"mediator/daemon", "mediator/executor"}, "scheduling works without the daemon, over a model of executors"},
	{[]string{"mediator/launchqueue"}, []string{"clock", "net", "os"}, "a queue is given the time and does no I/O"},
	{[]string{"mediator/tasks"}, []string{"clock", "net", "os"}, "which context gets which GPU is a pure function of what there is and the time"},
	{[]string{"mediator/nova/placement"}, []string{"clock"}, "a request is sent when the caller says so"},
	{[]string{"mediator/capacity", "mediator/kubernetes"}, []string{"clock", "net", "os"}, "what a host offers is a pure function of what the daemon says"},
	{[]string{"cmd/vgpu-placement", "mediator/nova"}, []string{"mediator/daemon", "mediator/executor", "gpu"}, "the agent knows GPUs by the daemon's API alone"},
	{[]string{"mediator/ipc/slotstate"}, []string{"clock"}, "a launch's states are given the time"},
	{[]string{"guestagent/preempt"}, []string{"net"}, "PTX in, PTX out"},
	{[]string{"cmd/vgpu-hook"}, []string{"mediator/libvirt", "mediator/libvirt/qmp"}, "libvirt waits for its hook, which would wait for libvirt"},
	{[]string{"cmd/vgpu-qemu"}, []string{"mediator", "net"}, "it starts each VM, on what a tenant may have a hand in, and has little in it"},
	{[]string{"cmd/vgpud", "cmd/vgpuctl"}, []string{"gpu/nvidia/inventory/binding", "mediator/libvirt/binding"}, "code that needs cgo is in a program of its own"},
	{[]string{"vfio"}, []string{"mediator"}, "the protocol knows no device"},
}

// forbids reports whether r keeps packages under its folders from importing path.
func (r rule) forbids(path string) bool {
	of, _ := layerOf(path)
	return slices.ContainsFunc(r.to, func(to string) bool {
		return path == to || path == module+"/"+to || of.path == to
	})
}

// pairs lists imports by tests from another room of the same floor or of a higher one, with the
// reason for each.
var pairs = []struct {
	from, to, reason string
}{
	{"mediator", "vgpud/guestagent/driver", "the device and the daemon are held to what a guest's driver sees of them: a second driver would only agree with itself"},
}

// pkg is a package as the go command lists it, with the imports of the files that it ignores.
type pkg struct {
	ImportPath     string
	Dir            string
	Imports        []string
	TestImports    []string // of tests in the package
	XTestImports   []string // of tests in package_test
	IgnoredGoFiles []string // for other build tags or systems
}

// tests returns the imports of the package's tests.
func (p pkg) tests() []string { return slices.Concat(p.TestImports, p.XTestImports) }

// list returns all packages of the module. Their imports include those of files that this build
// ignores: for the race detector, for C libraries, for other systems.
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

// importsOf returns the imports of a file.
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

// closure returns paths and everything that they import, directly or indirectly; of maps the
// packages of this module to their imports.
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

// TestFilesOfOtherBuildsAreRead checks that a build without libvirt's library still reads the files
// that need it.
func TestFilesOfOtherBuildsAreRead(t *testing.T) {
	const binding, library = module + "/mediator/libvirt/binding", "libvirt.org/go/libvirt"
	for _, p := range list(t) {
		if p.ImportPath == binding && slices.Contains(p.Imports, library) {
			return
		}
	}
	t.Errorf("%s is not seen to import %s", binding, library)
}

// under reports whether path is prefix or in a folder beneath it.
func under(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// layerOf returns the layer of a package.
func layerOf(path string) (layer, bool) {
	var best layer
	for _, l := range layers {
		if under(path, module+"/"+l.path) && len(l.path) > len(best.path) {
			best = l
		}
	}
	return best, best.path != ""
}

// climbs returns the imports that are neither of a lower layer nor of the package's own.
func climbs(from layer, imports []string) []string {
	return slices.DeleteFunc(slices.Clone(imports), func(imp string) bool {
		to, ok := layerOf(imp)
		return !ok || to == from || to.height < from.height
	})
}

func TestNoImportClimbs(t *testing.T) {
	used := make(map[string]bool)
	for _, p := range list(t) {
		from, ok := layerOf(p.ImportPath)
		if !ok {
			t.Errorf("%s is in no layer of the plan", p.ImportPath)
			continue
		}
		for _, imp := range climbs(from, p.Imports) {
			t.Errorf("%s (layer %d) imports %s", p.ImportPath, from.height, imp)
		}
		for _, imp := range climbs(from, p.tests()) {
			paired := false
			for _, e := range pairs {
				if under(p.ImportPath, module+"/"+e.from) && under(imp, e.to) {
					paired, used[e.from+" -> "+e.to] = true, true
				}
			}
			if !paired {
				t.Errorf("a test of %s (layer %d) imports %s", p.ImportPath, from.height, imp)
			}
		}
	}
	for _, e := range pairs {
		if !used[e.from+" -> "+e.to] {
			t.Errorf("no test of %s imports %s any more: it needs no exception", e.from, e.to)
		}
	}
}

// TestDaemonDoesNotLinkTheExecutor: what decides about guests carries no code that executes their
// commands. The daemon's tests start executors, so that only the package itself counts.
func TestDaemonDoesNotLinkTheExecutor(t *testing.T) {
	of := make(map[string][]string)
	for _, p := range list(t) {
		of[p.ImportPath] = p.Imports
	}
	for _, imp := range closure(of[module+"/mediator/daemon"], of) {
		if under(imp, module+"/mediator/executor") {
			t.Errorf("mediator/daemon links %s", imp)
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	pkgs := list(t)
	of := make(map[string][]string)
	for _, p := range pkgs {
		of[p.ImportPath] = p.Imports
	}
	for _, p := range pkgs {
		// Through the standard library everything imports os, and tests may read files: only direct
		// imports of it count, and only those of the package itself.
		all := slices.DeleteFunc(closure(slices.Concat(p.Imports, p.tests()), of), func(path string) bool {
			return !under(path, module)
		})
		imports := slices.Concat(p.Imports, all)
		slices.Sort(imports)
		imports = slices.Compact(imports)
		for _, r := range rules {
			if !slices.ContainsFunc(r.from, func(from string) bool { return under(p.ImportPath, module+"/"+from) }) {
				continue
			}
			for _, imp := range imports {
				if r.forbids(imp) {
					t.Errorf("%s imports %s: %s", p.ImportPath, imp, r.reason)
				}
			}
		}
	}
}

// archived maps modules that are no longer maintained to their successors. Our dependencies may
// still need them.
var archived = map[string]string{
	"gopkg.in/yaml.v3": "go.yaml.in/yaml/v3",
}

func TestNothingArchivedIsImported(t *testing.T) {
	for _, p := range list(t) {
		for _, imp := range slices.Concat(p.Imports, p.tests()) {
			if now := archived[imp]; now != "" {
				t.Errorf("%s imports %s, which is archived: its successor is %s", p.ImportPath, imp, now)
			}
		}
	}
}

// TestEveryPackageIsDescribed checks that docs/architecture.md names each package in backquotes,
// and that no package exists which it calls planned.
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

// TestEveryLayerExists checks that each layer of the plan has a package.
func TestEveryLayerExists(t *testing.T) {
	pkgs := list(t)
	for _, l := range layers {
		if !slices.ContainsFunc(pkgs, func(p pkg) bool { return under(p.ImportPath, module+"/"+l.path) }) {
			t.Errorf("the plan names %s, but there is no package", l.path)
		}
	}
}
