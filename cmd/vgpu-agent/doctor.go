package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/guestagent/agent"
	"vgpud/guestagent/driver"
)

// Results of an examination.
const (
	examOK      = "ok"
	examWarning = "warning"
	examFailed  = "failed"
)

// exam is what doctor found about one thing that CUDA programs need.
type exam struct {
	What   string `json:"what"`
	Result string `json:"result"`
	Found  string `json:"found"`
	Do     string `json:"do,omitempty"` // unless the result is ok
}

func newDoctor(o *options) *cobra.Command {
	f := newFormat()
	limit := 2 * time.Minute
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find out why CUDA programs don't run in this VM, and what to do",
		Long: `doctor examines what a CUDA program needs in this VM, in the order in which it needs it: a
virtual GPU that the kernel shows, the daemon, the libraries where the linker finds them,
and a device that computes. The exit status is 1 if anything failed. Warnings are about
what makes programs slower or may keep some from running.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(c.Context(), limit, fmt.Errorf("no answer within %v", limit))
			defer cancel()
			return doctor(ctx, c.OutOrStdout(), o, &f)
		},
	}
	f.Flags(c)
	c.Flags().DurationVar(&limit, "timeout", limit, "time limit")
	return c
}

func doctor(ctx context.Context, w io.Writer, o *options, f *output.Format) error {
	all, err := examine(ctx, o)
	if err != nil {
		return err
	}
	failed := 0
	var rows [][]string
	for _, e := range all {
		if e.Result == examFailed {
			failed++
		}
		rows = append(rows, []string{e.What, e.Result, e.Found, output.OrDash(e.Do)})
	}
	if f.Kind == "json" {
		err = output.JSON(w, all)
	} else {
		err = f.Table(w, []string{"WHAT", "RESULT", "FOUND", "DO"}, rows)
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d examinations failed", failed, len(all))
	}
	return err
}

// examine makes all examinations.
func examine(ctx context.Context, o *options) ([]exam, error) {
	all, devices, err := examineDevices(o)
	if err != nil {
		return nil, err
	}
	served, daemon := examineDaemon(o)
	all = append(all, daemon...)
	all = append(all, examineLibraries(o.root, os.Getenv("LD_LIBRARY_PATH"))...)
	if devices > 0 && served {
		all = append(all, examineComputing(ctx, o)...)
	}
	return all, nil
}

// examineDevices looks for virtual GPUs that the kernel shows.
func examineDevices(o *options) (all []exam, n int, err error) {
	p, err := o.pci()
	if err != nil {
		return nil, 0, err
	}
	found, err := agent.List(p)
	if err != nil {
		return nil, 0, err
	}
	if len(found) == 0 {
		return []exam{{"device", examFailed, "no virtual GPU", "on the host: `vgpuctl get vms`, and the domain's XML"}}, 0, nil
	}
	for _, d := range found {
		e := exam{What: "device " + d.Address, Result: examOK, Found: fmt.Sprintf("%d MiB of shared memory, access by %s", d.SharedBytes>>20, output.OrDash(d.Access))}
		switch {
		case d.Problem != "" && d.Access == "":
			e.Result, e.Do = examFailed, d.Problem
		case d.Problem != "":
			e.Result, e.Do = examWarning, d.Problem
		case d.Access == driver.AccessPolling.String():
			e.Result, e.Do = examWarning, "programs poll, which costs processor time: the agent binds it to vfio-pci if it can"
		}
		all = append(all, e)
	}
	return all, len(found), nil
}

// examineDaemon asks the daemon for its devices, and reports whether it answers.
func examineDaemon(o *options) (served bool, all []exam) {
	devices, err := status(o.socket)
	if err != nil {
		do := "systemctl status vgpu-agent"
		if errors.Is(err, os.ErrPermission) {
			do = "add the user to the group that the socket belongs to (render)"
		}
		return false, []exam{{"daemon", examFailed, err.Error(), do}}
	}
	all = append(all, exam{What: "daemon", Result: examOK, Found: fmt.Sprintf("it has %d virtual GPUs", len(devices))})
	for _, d := range devices {
		if d.State == agent.StateFailed {
			all = append(all, exam{"daemon " + d.Address, examFailed, d.State, d.Problem})
		}
	}
	missing, err := missingFunctions(o.socket)
	if err == nil && len(missing) > 0 {
		all = append(all, exam{
			"functions", examWarning, fmt.Sprintf("programs called %d that are not built, such as %s", len(missing), missing[0].Function),
			"vgpu-agent status --functions",
		})
	}
	return true, all
}

// examineComputing runs a kernel on each device.
func examineComputing(ctx context.Context, o *options) (all []exam) {
	devices, err := status(o.socket)
	if err != nil {
		return nil
	}
	p, err := o.pci()
	if err != nil {
		return nil
	}
	open := (&checkOptions{byAgent: true}).opener(o, p)
	for _, d := range devices {
		if d.State == agent.StateFailed {
			continue
		}
		e := exam{What: "computing " + d.Address, Result: examOK}
		r := agent.CheckBus(ctx, d.Address, open, agent.CheckOptions{Count: 20})
		switch {
		case !r.OK:
			e.Result, e.Found, e.Do = examFailed, r.Error, "on the host: `vgpuctl doctor`, and the daemon's log"
		case r.Launch != nil:
			e.Found = fmt.Sprintf("%s, a launch takes %s", r.GPU, short(r.Launch.P50))
		}
		all = append(all, e)
	}
	return all
}

// The libraries that programs load, and the one that ours loads in turn, which others lack.
const (
	driverLibrary  = "libcuda.so.1"
	driverPart     = "libvgpucuda.so"
	runtimeLibrary = "libcudart.so.*"
)

// examineLibraries looks for the libraries where the linker does.
func examineLibraries(root, loadPath string) []exam {
	const install = "scripts/install.sh --guest, then ldconfig"
	found := findLibrary(root, loadPath, driverLibrary)
	inside := func(path string) string { return "/" + strings.TrimPrefix(strings.TrimPrefix(path, root), "/") }
	e := exam{What: driverLibrary, Result: examOK}
	switch {
	case len(found) == 0:
		e.Result, e.Found, e.Do = examFailed, "the linker does not find it", install
	case !isOurs(found[0]):
		e.Result, e.Found, e.Do = examFailed, inside(found[0])+" is another's", "remove it or its path; ours must come first: "+install
	default:
		e.Found = inside(found[0])
		if loadPath == "" && !cached(root, e.Found) {
			e.Result, e.Do = examWarning, "the linker's cache does not have it: ldconfig"
		} else if len(found) > 1 {
			e.Result, e.Do = examWarning, "programs with a path of their own may load "+inside(found[1])
		}
	}
	all := []exam{e}
	e = exam{What: "libcudart.so", Result: examOK}
	if found := findLibrary(root, loadPath, runtimeLibrary); len(found) == 0 {
		e.Result, e.Found, e.Do = examWarning, "the linker finds none", "programs that bring none need ours: "+install
	} else {
		var names []string
		for _, path := range found {
			names = append(names, filepath.Base(path))
		}
		e.Found = strings.Join(names, ", ")
	}
	return append(all, e)
}

// isOurs reports whether a libcuda is the one that belongs to this agent.
func isOurs(path string) bool {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	_, err := os.Stat(filepath.Join(filepath.Dir(path), driverPart))
	return err == nil
}

// usualPaths are where the linker looks after its configured paths.
var usualPaths = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// findLibrary returns the files that match a library's name, in the order in which the linker
// prefers them.
func findLibrary(root, loadPath, pattern string) (found []string) {
	dirs := filepath.SplitList(loadPath)
	seen := map[string]bool{}
	for _, d := range append(configuredPaths(root, "/etc/ld.so.conf", 0), usualPaths...) {
		dirs = append(dirs, filepath.Join(root, d))
	}
	for _, d := range dirs {
		matches, err := filepath.Glob(filepath.Join(d, pattern))
		if err != nil {
			continue
		}
		for _, m := range matches {
			real, err := filepath.EvalSymlinks(m)
			if err != nil || seen[real+filepath.Base(m)] {
				continue
			}
			seen[real+filepath.Base(m)] = true
			found = append(found, m)
		}
	}
	return found
}

// maxIncludes bounds how deeply files of paths include others.
const maxIncludes = 8

// configuredPaths returns the paths of a file such as /etc/ld.so.conf, in order.
func configuredPaths(root, path string, depth int) (dirs []string) {
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil || depth > maxIncludes {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		pattern, include := strings.CutPrefix(line, "include ")
		switch {
		case include:
			pattern = strings.TrimSpace(pattern)
			if !strings.HasPrefix(pattern, "/") {
				pattern = filepath.Join(filepath.Dir(path), pattern)
			}
			matches, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil {
				continue
			}
			for _, m := range matches {
				dirs = append(dirs, configuredPaths(root, strings.TrimPrefix(m, strings.TrimSuffix(root, "/")), depth+1)...)
			}
		case strings.HasPrefix(line, "/"):
			dirs = append(dirs, line)
		}
	}
	return dirs
}

// cached reports whether the linker's cache names a file. A system without a cache has none to be
// stale.
func cached(root, path string) bool {
	b, err := os.ReadFile(filepath.Join(root, "/etc/ld.so.cache"))
	return err != nil || strings.Contains(string(b), path+"\x00")
}
