package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// halideTarget is what Halide compiles for: LLVM's PTX for the GPU's part, and for the rest a
// processor that every machine of today has. Halide 14 takes some processors for newer ones than
// they are (its "host" is Sapphire Rapids on AMD's Zen 4), and then a test ends with SIGILL.
const (
	halideHost   = "x86-64-linux-sse41-avx-avx2-f16c-fma"
	halideTarget = halideHost + "-cuda-cuda_capability_61"
)

// usesGPU reports whether a source of Halide's tests may use a GPU: its code mentions one.
func usesGPU(source []byte) bool { return mentionsGPU.Match(comment.ReplaceAll(source, nil)) }

var mentionsGPU = regexp.MustCompile(`(?i)gpu|DeviceAPI::CUDA|Target::CUDA`)

var comment = regexp.MustCompile(`(?ms)//[^\n]*|/\*.*?\*/`)

// halideTests lists Halide's tests, tutorials and apps that use a GPU.
func halideTests(c *toolchain) (tests []*test, hostOnly int, err error) {
	for _, group := range []string{"correctness", "performance", "error"} {
		paths, err := filepath.Glob(filepath.Join(c.halideSource, "test", group, "*.cpp"))
		if err != nil {
			return nil, 0, err
		}
		for _, p := range paths {
			text, err := os.ReadFile(p)
			if err != nil {
				return nil, 0, err
			}
			if !usesGPU(text) {
				hostOnly++
				continue
			}
			t := c.halideJIT(group+"/"+filepath.Base(p), p)
			t.success = "Success!"
			tests = append(tests, t)
		}
	}
	for _, lesson := range []string{"lesson_12_using_the_gpu", "lesson_19_wrapper_funcs"} {
		t := c.halideJIT("tutorial/"+lesson+".cpp", filepath.Join(c.halideSource, "tutorial", lesson+".cpp"))
		t.files = []string{filepath.Join(c.halideSource, "tutorial", "images")}
		tests = append(tests, t)
	}
	python, err := c.halidePython()
	if err != nil {
		return nil, 0, err
	}
	tests = append(tests, python...)
	tests = append(tests, c.halideGenerators()...)
	tests = append(tests, c.halideApps()...)
	return tests, hostOnly, nil
}

var (
	halideFlags = []string{"-std=c++17", "-O1", "-fno-rtti", "-w", "-pthread"}
	halideLibs  = []string{"-lHalide14", "-lpng", "-ljpeg", "-ldl", "-lm", "-pthread", "-rdynamic"}
	// HL_DEBUG_CODEGEN makes Halide print the PTX that it compiles.
	halideEnv = []string{"HL_TARGET=" + halideTarget, "HL_JIT_TARGET=" + halideTarget, "HL_NUM_THREADS=2", "HL_DEBUG_CODEGEN=1"}
)

// halideIncludes returns the directories of headers. Halide.h is large, so the first has a
// precompiled form of it.
func (c *toolchain) halideIncludes() []string {
	return []string{
		"-I" + filepath.Join(c.dir, "pch"), "-I" + filepath.Join(c.root, "usr", "include", "halide14"),
		"-I" + filepath.Join(c.halideSource, "test", "common"), "-I" + filepath.Join(c.halideSource, "tools"),
		"-I" + filepath.Join(c.halideSource, "test", "correctness"), "-I" + filepath.Join(c.halideSource, "src", "runtime"),
	}
}

// halideJIT returns a test that compiles its pipelines while it runs.
func (c *toolchain) halideJIT(name, source string) *test {
	return &test{
		Suite: "halide", Name: name, sources: []string{source}, env: halideEnv, offloads: !runNoKernel[name],
		steps: []step{{"g++-12", slices.Concat(halideFlags, c.halideIncludes(), []string{source, "-o", "test"}, halideLibs)}},
	}
}

// halidePython returns the tests of the Python module that use a GPU. They run with the packages'
// own Python.
func (c *toolchain) halidePython() ([]*test, error) {
	var tests []*test
	for _, p := range []string{"tutorial/lesson_12_using_the_gpu.py", "correctness/boundary_conditions.py", "correctness/target.py"} {
		path := filepath.Join(c.halideSource, "python_bindings", p)
		name := "python/" + strings.TrimPrefix(p, "correctness/")
		tests = append(tests, &test{
			Suite: "halide", Name: name, sources: []string{path}, offloads: true,
			env: append(slices.Clone(halideEnv),
				"PYTHONHOME="+filepath.Join(c.root, "usr"), "PYTHONDONTWRITEBYTECODE=1",
				"PYTHONPATH="+filepath.Join(c.root, "usr", "lib", "python3", "dist-packages")),
			command: []string{filepath.Join(c.root, "usr", "bin", "python3.11"), path},
			files:   []string{filepath.Join(c.halideSource, "python_bindings", "tutorial")},
		})
	}
	return tests, nil
}

// generate returns the steps that build a generator and run it: outputs is a list of further
// arguments for each of its outputs.
func (c *toolchain) generate(source string, outputs ...[]string) []step {
	steps := []step{{"g++-12", slices.Concat(halideFlags, c.halideIncludes(),
		[]string{source, filepath.Join(c.root, "usr", "src", "halide14", "GenGen.cpp"), "-o", "generator"}, halideLibs)}}
	for _, o := range outputs {
		steps = append(steps, step{"./generator", append([]string{"-o", ".", "-e", "static_library,h,registration"}, o...)})
	}
	return append(steps, step{"./generator", []string{"-r", "runtime", "-o", ".", "-e", "static_library", "target=" + halideTarget}})
}

// aotProgram returns the step that links a program with what generators made.
func (c *toolchain) aotProgram(sources, libraries, flags []string) step {
	args := slices.Concat(halideFlags, []string{"-I."}, c.halideIncludes()[1:], flags, sources)
	for _, l := range libraries {
		args = append(args, l+".a")
	}
	return step{"g++-12", slices.Concat(args, []string{"runtime.a", "-o", "test"}, halideLibs[1:])}
}

// halideGenerators returns the tests of code that is compiled ahead of time and uses a GPU.
func (c *toolchain) halideGenerators() []*test {
	dir := filepath.Join(c.halideSource, "test", "generator")
	in := func(name string) string { return filepath.Join(dir, name) }
	target := "target=" + halideTarget + "-no_runtime"
	var tests []*test
	add := func(name, generator string, libraries, more []string, outputs ...[]string) {
		sources := []string{in(name + "_aottest.cpp")}
		for _, m := range more {
			sources = append(sources, in(m))
		}
		t := &test{Suite: "halide", Name: "generator/" + name, env: halideEnv, success: "Success!", offloads: true}
		t.steps = append(c.generate(in(generator+"_generator.cpp"), outputs...),
			c.aotProgram(sources, libraries, []string{"-DTEST_CUDA", "-I" + dir}))
		// Some of these call CUDA's driver API themselves.
		link := &t.steps[len(t.steps)-1]
		link.args = append(link.args, "-lcuda")
		t.sources = append(sources, in(generator+"_generator.cpp"))
		tests = append(tests, t)
	}
	for _, name := range []string{"acquire_release", "buffer_copy", "gpu_only", "gpu_texture", "define_extern_opencl"} {
		add(name, name, []string{name}, nil, []string{"-g", name, "-f", name, target})
	}
	add("gpu_object_lifetime", "gpu_object_lifetime", []string{"gpu_object_lifetime"}, nil,
		[]string{"-g", "gpu_object_lifetime", "-f", "gpu_object_lifetime", target + "-debug"})
	add("gpu_multi_context_threaded", "gpu_multi_context_threaded",
		[]string{"gpu_multi_context_threaded_add", "gpu_multi_context_threaded_mul"}, nil,
		[]string{"-g", "gpu_multi_context_threaded_add", "-f", "gpu_multi_context_threaded_add", target + "-user_context"},
		[]string{"-g", "gpu_multi_context_threaded_mul", "-f", "gpu_multi_context_threaded_mul", target + "-user_context"})
	add("cxx_mangling", "cxx_mangling", []string{"cxx_mangling", "cxx_mangling_gpu"}, []string{"cxx_mangling_externs.cpp"},
		[]string{"-g", "cxx_mangling", "-f", "HalideTest::AnotherNamespace::cxx_mangling", "-n", "cxx_mangling",
			"target=" + halideHost + "-no_runtime-c_plus_plus_name_mangling"},
		[]string{"-g", "cxx_mangling", "-f", "HalideTest::cxx_mangling_gpu", "-n", "cxx_mangling_gpu", target + "-c_plus_plus_name_mangling"})
	return tests
}

// An app is one of Halide's applications, with its test's arguments. Images are the small ones that
// Halide provides, since the GPU is interpreted.
type app struct {
	name, generator, program string
	args                     []string
	flags                    []string
	auto                     bool // it compares with an automatic schedule, which is for the CPU
}

var halideAppList = []app{
	{"bilateral_grid", "bilateral_grid", "filter.cpp", []string{"gray_small.png", "out.png", "0.1", "1"}, []string{"-DNO_AUTO_SCHEDULE"}, false},
	{"blur", "halide_blur", "test.cpp", nil, nil, false},
	{"camera_pipe", "camera_pipe", "process.cpp", []string{"bayer_small.png", "3700", "2.0", "50", "1.0", "1", "out.png"}, []string{"-DNO_AUTO_SCHEDULE"}, false},
	{"depthwise_separable_conv", "depthwise_separable_conv", "process.cpp", nil, nil, true},
	{"harris", "harris", "filter.cpp", []string{"rgb.png", "out.png"}, nil, true},
	{"hist", "hist", "filter.cpp", []string{"rgb_small.png", "out.png"}, nil, true},
	{"iir_blur", "iir_blur", "filter.cpp", []string{"rgb_small.png", "out.png"}, nil, true},
	{"interpolate", "interpolate", "filter.cpp", []string{"rgba.png", "out.png"}, nil, true},
	{"lens_blur", "lens_blur", "process.cpp", []string{"rgb_small.png", "32", "13", "0.5", "32", "1", "out.png"}, nil, true},
	{"local_laplacian", "local_laplacian", "process.cpp", []string{"rgb_small.png", "8", "1", "1", "1", "out.png"}, []string{"-DNO_AUTO_SCHEDULE"}, false},
	{"max_filter", "max_filter", "filter.cpp", []string{"rgb_small.png", "out.png"}, nil, true},
	{"nl_means", "nl_means", "process.cpp", []string{"rgb_small.png", "7", "7", "0.12", "1", "out.png"}, nil, true},
	{"stencil_chain", "stencil_chain", "process.cpp", []string{"rgb_small.png", "1", "out.png"}, []string{"-DNO_AUTO_SCHEDULE"}, false},
	{"unsharp", "unsharp", "filter.cpp", []string{"rgb.png", "out.png"}, nil, true},
	{"bgu", "bgu", "filter.cpp", []string{"rgb_small.png", "out.png"}, nil, true},
}

// halideApps returns the applications whose generators have a schedule for a GPU.
func (c *toolchain) halideApps() []*test {
	var tests []*test
	for _, a := range halideAppList {
		dir := filepath.Join(c.halideSource, "apps", a.name)
		source := filepath.Join(dir, a.generator+"_generator.cpp")
		program := filepath.Join(dir, a.program)
		libraries := []string{a.generator}
		outputs := [][]string{{"-g", a.generator, "-f", a.generator, "target=" + halideTarget + "-no_runtime"}}
		if a.auto {
			libraries = append(libraries, a.generator+"_auto_schedule")
			plugin := filepath.Join(c.root, "usr", "lib", "x86_64-linux-gnu", "halide14", "libautoschedule_mullapudi2016.so")
			outputs = append(outputs, []string{"-g", a.generator, "-f", a.generator + "_auto_schedule", "-p", plugin, "-s", "Mullapudi2016",
				"target=" + halideTarget + "-no_runtime", "auto_schedule=true"})
		}
		t := &test{Suite: "halide", Name: "apps/" + a.name, env: halideEnv, args: a.args, success: "Success!", offloads: true}
		t.steps = append(c.generate(source, outputs...), c.aotProgram([]string{program}, libraries, append([]string{"-I" + dir}, a.flags...)))
		t.sources = []string{source, program}
		for _, arg := range a.args {
			if image := filepath.Join(c.halideSource, "apps", "images", arg); exists(image) {
				t.files = append(t.files, image)
			}
		}
		tests = append(tests, t)
	}
	return tests
}
