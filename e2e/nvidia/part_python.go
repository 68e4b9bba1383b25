package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vgpud/e2e/nvidia/report"
	"vgpud/guestagent/cuda"
	"vgpud/mediator/api"
)

// pythonPrograms has Python packages that use CUDA, as their makers ship them, use a guest's virtual
// GPU: numba's own tests of CUDA, and operations of PyTorch and CuPy (apps/operations.py). What is
// right by the machine's own driver must be right in a guest.
func pythonPrograms(ctx context.Context, b *bench) error {
	v, err := b.client.CreateVM(ctx, api.VMSpec{Name: "python", MemoryLimitBytes: 4 * programsMemory})
	if err != nil {
		return err
	}
	b.guests = append(b.guests, v.Name)
	p := &pythonTenant{bench: b, dir: b.program("cuda"), socket: v.Socket}
	return errors.Join(p.numba(ctx), p.operations(ctx))
}

// pythonTenant runs Python programs on a guest's virtual GPU, and on the machine's own driver.
type pythonTenant struct {
	*bench
	dir    string // with the libraries in lib, and operations.py
	socket string
}

// replaced runs its arguments where vgpud's CUDA runtime, which $RUNTIME names, stands in the place
// of each that Python packages brought along, as a tenant would put it there: packages open theirs
// by a path of its own. No process but these sees that.
const replaced = `for f in $(find "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" /usr/local/cuda/ -name "$(basename "$RUNTIME")*" -type f 2>/dev/null); do
	mount --bind "$RUNTIME" "$f" || exit
done
exec "$@"`

// command makes a command of Python's, on the virtual GPU or on the machine's own driver.
func (p *pythonTenant) command(ctx context.Context, guest bool, args ...string) *exec.Cmd {
	args = append([]string{"python3"}, args...)
	env := append(os.Environ(), "CUDA_HOME=/usr/local/cuda") // where numba looks for libNVVM
	if !guest {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = env
		return cmd
	}
	lib := filepath.Join(p.dir, "lib")
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "sh", "-c", replaced, "sh"}, args...)...)
	cmd.Env = append(env, cuda.SocketVariable+"="+p.socket, "LD_LIBRARY_PATH="+lib, "RUNTIME="+filepath.Join(lib, "libcudart.so.13"))
	return cmd
}

// numbaTests prints the files of numba's tests of CUDA.
const numbaTests = `import glob, importlib, os
for name in "cudadrv", "cudapy":
    for path in importlib.import_module("numba.cuda.tests." + name).__path__:
        print(*sorted(glob.glob(os.path.join(path, "test_*.py"))), sep="\n")`

// numbaLimit bounds the time of one file's tests, and numbaAtOnce is how many files are tried at
// the same time.
const (
	numbaLimit  = 100 * time.Second
	numbaAtOnce = 12
)

// numba runs numba's tests, one process for each file.
func (p *pythonTenant) numba(ctx context.Context) error {
	out, err := p.command(ctx, false, "-c", numbaTests).Output()
	if err != nil {
		p.say("numba's tests are not run: %v", first(err))
		return nil
	}
	files := strings.Fields(string(out))
	if p.quick || p.tiny {
		files = slices.DeleteFunc(files, func(f string) bool { return !strings.Contains(f, "cudapy/test_a") })
	}
	native, err := p.tests(ctx, false, files)
	if err != nil {
		return err
	}
	if native.count(passed) == 0 {
		p.say("numba's tests are not run: none passes on the machine's own driver")
		return nil
	}
	guest, err := p.tests(ctx, true, files)
	if err != nil {
		return err
	}
	failed := failedInGuest(native, guest)
	for _, name := range failed {
		p.say("%s: %s", name, guest[name].reason)
	}
	r := p.row("python_tests_failed", []float64{float64(len(failed))},
		fmt.Sprintf("numba's own tests of CUDA, %d files of tests, a process each, that pass on the machine's own driver and don't in a guest, through vgpud's libraries in the places of NVIDIA's", len(files)))
	r.Baseline["passed_natively"] = float64(native.count(passed))
	r.Baseline["passed_in_a_guest"] = float64(guest.count(passed))
	r.Baseline["failed_natively"] = float64(native.count(notPassed))
	r.Baseline["skipped_natively"] = float64(native.count(skipped))
	r.Detail = byFile(native, guest)
	p.add(r)
	return nil
}

// outcome is how a test ended.
type outcome string

const (
	passed    outcome = "passed"
	notPassed outcome = "failed"
	skipped   outcome = "skipped"
)

// tried is a test's outcome, and what it said if it failed.
type tried struct {
	outcome outcome
	reason  string
}

// outcomes has tests by file and name.
type outcomes map[string]tried

func (o outcomes) count(which outcome) (n int) {
	for _, t := range o {
		if t.outcome == which {
			n++
		}
	}
	return n
}

// failedInGuest returns the names of the tests that pass natively and don't in a guest, those among
// them that a guest's process did not come to.
func failedInGuest(native, guest outcomes) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(native)) {
		if native[name].outcome == passed && guest[name].outcome != passed {
			names = append(names, name)
		}
	}
	return names
}

// byFile counts the tests of each file that pass.
func byFile(native, guest outcomes) *report.Table {
	counts := make(map[string]*[2]float64)
	for i, o := range []outcomes{native, guest} {
		for name, t := range o {
			file, _, _ := strings.Cut(name, "::")
			if counts[file] == nil {
				counts[file] = new([2]float64)
			}
			if t.outcome == passed {
				counts[file][i]++
			}
		}
	}
	table := detail("passed natively", "passed in a guest")
	for _, file := range slices.Sorted(maps.Keys(counts)) {
		table.Add(file, counts[file][0], counts[file][1])
	}
	return table
}

// tests runs the tests of files and returns how each ended.
func (p *pythonTenant) tests(ctx context.Context, guest bool, files []string) (outcomes, error) {
	all := make(outcomes)
	var mu sync.Mutex
	begin := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(numbaAtOnce)
	for i, file := range files {
		group.Go(func() error {
			results := filepath.Join(p.testbed.dir, fmt.Sprintf("numba-%v-%d.xml", guest, i))
			limited, cancel := context.WithTimeout(ctx, numbaLimit)
			defer cancel()
			cmd := p.command(limited, guest, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml="+results, file)
			said, failure := cmd.CombinedOutput()
			if err := ctx.Err(); err != nil {
				return err
			}
			b, err := os.ReadFile(results)
			if err != nil { // it ended before pytest wrote anything
				p.say("%s, in a guest %v: %v: %s", filepath.Base(file), guest, failure, lastLine(said))
				return nil
			}
			found, err := readJUnit(b)
			if err != nil {
				return fmt.Errorf("read what %s printed: %w", filepath.Base(file), err)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(found) == 1 && failure != nil { // it could not be read
				p.say("%s, in a guest %v: %s", filepath.Base(file), guest, lastLine(said))
			}
			for name, t := range found {
				all[filepath.Base(file)+"::"+name] = t
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	p.say("numba, in a guest %v: %d tests passed, %d failed, %d skipped, %.0f s", guest,
		all.count(passed), all.count(notPassed), all.count(skipped), time.Since(begin).Seconds())
	return all, nil
}

// readJUnit reads what pytest --junitxml wrote.
func readJUnit(b []byte) (outcomes, error) {
	type message struct {
		Message string `xml:"message,attr"`
	}
	var doc struct {
		Cases []struct {
			Class   string   `xml:"classname,attr"`
			Name    string   `xml:"name,attr"`
			Failure *message `xml:"failure"`
			Error   *message `xml:"error"`
			Skipped *message `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(b, &doc); err != nil {
		return nil, err
	}
	found := make(outcomes)
	for _, c := range doc.Cases {
		class := c.Class[strings.LastIndexByte(c.Class, '.')+1:]
		t := tried{outcome: passed}
		for _, m := range []*message{c.Failure, c.Error} {
			if m != nil {
				t = tried{notPassed, first(errors.New(m.Message))}
			}
		}
		if c.Skipped != nil {
			t = tried{outcome: skipped}
		}
		found[class+"."+c.Name] = t
	}
	return found, nil
}

// operations runs the operations of packages.
func (p *pythonTenant) operations(ctx context.Context) error {
	table := detail("on the machine's own driver", "in a guest")
	var failed []string
	var tries int
	for _, of := range []string{"torch", "cupy"} {
		var said [2]map[string]string
		for i, guest := range []bool{false, true} {
			limited, cancel := context.WithTimeout(ctx, numbaLimit)
			cmd := p.command(limited, guest, filepath.Join(p.dir, "operations.py"), of)
			out, err := cmd.Output()
			cancel()
			if err := ctx.Err(); err != nil {
				return err
			}
			if err != nil {
				var e *exec.ExitError
				if errors.As(err, &e) {
					err = fmt.Errorf("%w: %s", err, lastLine(e.Stderr))
				}
				p.say("%s, in a guest %v: %v", of, guest, err)
			}
			said[i] = make(map[string]string)
			for line := range strings.Lines(string(out)) {
				if name, what, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
					said[i][name] = what
				}
			}
		}
		const right = "right"
		for _, name := range slices.Sorted(maps.Keys(said[0])) {
			table.Add(of+": "+name, asNumber(said[0][name] == right), asNumber(said[1][name] == right))
			if said[0][name] != right {
				continue
			}
			tries++
			if said[1][name] != right {
				failed = append(failed, of+": "+name)
				p.say("%s: %s: %s", of, name, said[1][name])
			}
		}
	}
	if tries == 0 {
		return nil // what is missing has been said
	}
	how := "operations of PyTorch and CuPy (e2e/nvidia/apps/operations.py) that are right on the machine's own driver and not in a guest, through vgpud's libraries in the places of NVIDIA's. 1: right"
	if len(failed) > 0 {
		how += "; not right: " + strings.Join(failed, ", ")
	}
	r := p.row("python_operations_failed", []float64{float64(len(failed))}, how)
	r.Baseline["right_natively"] = float64(tries)
	r.Detail = table
	p.add(r)
	return nil
}

// lastLine returns the last line of what a program said.
func lastLine(b []byte) string {
	s := strings.TrimSpace(string(b))
	return s[strings.LastIndexByte(s, '\n')+1:]
}
