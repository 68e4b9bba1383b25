package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A group is one of the suite's *.exp files: which sources it has, and how it builds them.
type group struct {
	name    string // "libgomp.c"
	dirs    []string
	suffix  *regexp.Regexp
	lang    string
	driver  string
	options []string

	libraries []string
}

var (
	openmp  = []string{"-fopenmp", "-foffload=nvptx-none"}
	openacc = []string{"-fopenacc", "-foffload=nvptx-none", "-DACC_DEVICE_TYPE_nvidia=1", "-DACC_MEM_SHARED=0"}
	always  = []string{"-fmessage-length=0", "-fno-diagnostics-show-caret", "-fdiagnostics-color=never"}

	libC       = []string{"-lm"}
	libFortran = []string{"-lm", "-lgfortran", "-foffload=-lgfortran"}

	suffixC       = regexp.MustCompile(`\.c$`)
	suffixCXX     = regexp.MustCompile(`\.[cC]$`)
	suffixFortran = regexp.MustCompile(`\.[fF](|90|95|03|08)$`)
)

// groups are the suite's parts that offload. libgomp.graphite tests loop parallelization on the
// host. Where a part repeats its tests at several levels of optimization, they are built with -O2.
var groups = []group{
	{"libgomp.c", []string{"libgomp.c", "libgomp.c-c++-common"}, suffixC, "c", "gcc-12", openmp, libC},
	{"libgomp.c++", []string{"libgomp.c++", "libgomp.c-c++-common"}, suffixCXX, "c++", "g++-12", openmp, libC},
	{"libgomp.fortran", []string{"libgomp.fortran"}, suffixFortran, "fortran", "gfortran-12", openmp, libFortran},
	{"libgomp.oacc-c", []string{"libgomp.oacc-c", "libgomp.oacc-c-c++-common"}, suffixC, "c", "gcc-12", openacc, libC},
	{"libgomp.oacc-c++", []string{"libgomp.oacc-c++", "libgomp.oacc-c-c++-common"}, suffixCXX, "c++", "g++-12", openacc, libC},
	{"libgomp.oacc-fortran", []string{"libgomp.oacc-fortran"}, suffixFortran, "fortran", "gfortran-12", openacc, libFortran},
}

// libgompTests lists the tests of GCC's libgomp, whose directory is src. It leaves out sources that
// contain nothing to offload, and counts them.
func libgompTests(c *toolchain) (tests []*test, hostOnly int, err error) {
	root := filepath.Join(c.gccSource, "libgomp", "testsuite")
	for _, g := range groups {
		for _, dir := range g.dirs {
			err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || !g.suffix.MatchString(path) {
					return err
				}
				t, err := c.libgompTest(g, root, path)
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				if t == nil {
					hostOnly++
					return nil
				}
				tests = append(tests, t)
				return nil
			})
			if err != nil {
				return nil, 0, err
			}
		}
	}
	return tests, hostOnly, nil
}

// deviceCode matches what makes a program use a device: a construct of OpenMP's device part, any of
// OpenACC, or a function of their libraries' device parts.
var deviceCode = regexp.MustCompile(`(?i)omp[^\n]*\btarget\b|[#!$]acc\b|\bacc[ \t]+(?:parallel|kernels|serial|data|enter|exit|update|loop|declare|routine|host_data|wait|init|shutdown|set|atomic)\b|\bacc_[a-z]+|\bomp_target_|GOACC_|GOMP_target`)

// computeConstruct matches a construct that becomes a kernel.
var computeConstruct = regexp.MustCompile(`(?im)\bacc[ \t]+(parallel|kernels|serial)\b|\bomp[ \t]+target\b(?:[ \t\\]*$|[ \t]+(?:parallel|teams|simd|map|if|is_device|private|firstprivate|defaultmap|depend|nowait|device|in_reduction|has_device))|cuLaunchKernel`)

// libgompTest reads a test's directives. It returns nil if the test has nothing to offload.
func (c *toolchain) libgompTest(g group, root, path string) (*test, error) {
	own, all, err := readSource(path)
	if err != nil {
		return nil, err
	}
	list, err := directives(own)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	t := &test{Suite: "libgomp", Name: rel, sources: []string{path}, dir: filepath.Dir(path)}
	if !strings.HasPrefix(rel, g.name+"/") {
		t.Name = g.name + ": " + rel
	}
	t.optimize = []string{"-O2"}
	t.options = slices.Concat(always, g.options,
		[]string{"-I" + filepath.Join(c.gccSource, "include"), "-I" + filepath.Join(c.gccSource, "libgomp"), "-I" + filepath.Dir(path)})
	if slices.Contains(g.options, "-fopenacc") {
		t.env = append(t.env, "ACC_DEVICE_TYPE=nvidia")
		// Where timer.h and subr.ptx are.
		common := filepath.Join(root, "libgomp.oacc-c-c++-common")
		t.options = append(t.options, "-I"+common)
		t.files = append(t.files, filepath.Join(common, "subr.ptx"))
	} else if !mayFallBack[rel] {
		t.env = append(t.env, "OMP_TARGET_OFFLOAD=MANDATORY")
	}
	for _, d := range list {
		if err := t.apply(d, g.lang); err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", d.line, d.name, err)
		}
	}
	for _, s := range t.sources[1:] {
		_, more, err := readSource(s)
		if err != nil {
			return nil, err
		}
		all += more
	}
	if t.skip == "" && !deviceCode.MatchString(all) {
		return nil, nil
	}
	t.offloads = computeConstruct.MatchString(all) && !runNoKernel[rel]
	// Libraries come behind what needs them.
	var libraries, others []string
	for _, o := range t.extra {
		if strings.HasPrefix(o, "-l") {
			libraries = append(libraries, o)
		} else {
			others = append(others, o)
		}
	}
	t.steps = []step{{g.driver, slices.Concat(t.optimize, t.options, others, t.sources, []string{"-o", "test"}, g.libraries, libraries)}}
	return t, nil
}

// apply applies one directive to a test.
func (t *test) apply(d directive, lang string) error {
	// condition evaluates the selector in argument i, which opens with the word "target".
	condition := func(i int) (bool, error) {
		s := strings.TrimSpace(d.arg(i))
		s, _ = strings.CutPrefix(s, "target")
		return selects(s, lang)
	}
	switch d.name {
	case "dg-do":
		ok, err := condition(1)
		switch what := strings.TrimSpace(d.arg(0)); {
		case err != nil:
			return err
		case !ok:
			// A further dg-do may say what is done here instead.
			t.skipFor("not for this target")
		case what == "run":
			t.skip = ""
		default:
			t.skipFor("only built: dg-do " + what)
		}
	case "dg-options":
		ok, err := condition(1)
		if ok {
			t.optimize = strings.Fields(d.arg(0))
		}
		return err
	case "dg-additional-options":
		ok, err := condition(1)
		if ok {
			t.extra = append(t.extra, strings.Fields(d.arg(0))...)
		}
		return err
	case "dg-skip-if":
		hit, err := t.hits(d, lang)
		if hit {
			t.skipFor("not built this way")
		}
		return err
	case "dg-xfail-run-if":
		hit, err := t.hits(d, lang)
		if hit {
			t.xfail = true
		}
		return err
	case "dg-require-effective-target":
		ok, err := selects(d.arg(0), lang)
		if !ok && err == nil {
			t.skipFor("requires " + d.arg(0))
		}
		return err
	case "dg-shouldfail":
		ok, err := condition(1)
		if ok {
			t.shouldFail = true
		}
		return err
	case "dg-error":
		if !strings.Contains(strings.Join(d.args, " "), "xfail") {
			t.skipFor("only compiled: an error is expected")
		}
	case "dg-output":
		if len(d.args) > 1 {
			if strings.HasPrefix(strings.TrimSpace(d.arg(1)), "xfail") {
				return nil // the suite expects that it doesn't match
			}
			ok, err := condition(1)
			if !ok || err != nil {
				return err
			}
		}
		t.output += d.arg(0)
	case "dg-additional-sources":
		for _, s := range strings.Fields(d.arg(0)) {
			t.sources = append(t.sources, filepath.Join(t.dir, s))
		}
	case "dg-set-target-env-var":
		t.env = append(t.env, d.arg(0)+"="+d.arg(1))
	}
	return nil
}

// hits evaluates dg-skip-if and directives like it: comment, selector, options that it is for ("*": all), and
// options that it is not for.
func (t *test) hits(d directive, lang string) (bool, error) {
	ok, err := selects(d.arg(1), lang)
	if !ok || err != nil {
		return false, err
	}
	given := slices.Concat(t.optimize, t.options, t.extra)
	if len(d.args) > 2 {
		if in, err := optionsMatch(d.arg(2), given); !in || err != nil {
			return false, err
		}
	}
	if len(d.args) > 3 {
		out, err := optionsMatch(d.arg(3), given)
		return !out, err
	}
	return true, nil
}

var includeLine = regexp.MustCompile(`(?m)^[ \t]*#?[ \t]*include[ \t]+["']([^"']+)["']`)

// included returns the text of the files that text includes and that lie beside path.
func included(path, text string, seen map[string]bool) string {
	var all strings.Builder
	for _, m := range includeLine.FindAllStringSubmatch(text, -1) {
		p := filepath.Join(filepath.Dir(path), m[1])
		if seen[p] {
			continue
		}
		seen[p] = true
		more, err := os.ReadFile(p)
		if err != nil {
			continue // a header of the system's
		}
		all.Write(more)
		all.WriteString(included(p, string(more), seen))
	}
	return all.String()
}
