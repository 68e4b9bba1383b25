package program

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict says where a program will run.
type Verdict string

// The verdicts, from the best.
const (
	Runs          Verdict = "yes"
	NeedsHardware Verdict = "on NVIDIA GPUs only"
	Fails         Verdict = "no"
	Unused        Verdict = "without CUDA" // the program does not use CUDA
)

// judge decides whether the program will run, and says why not.
func (r *Report) judge(f *file) {
	r.Runs = Runs
	worse := func(v Verdict, format string, args ...any) {
		if v == Fails || r.Runs == Runs {
			r.Runs = v
		}
		r.Reasons = append(r.Reasons, fmt.Sprintf(format, args...))
	}
	note := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }

	if r.Runtime == NoCUDA && len(r.Images) == 0 && len(r.Libraries) == 0 {
		r.Runs = Unused
		return
	}
	if f.machine != machineX86 {
		worse(Fails, "it is a program for another machine (ELF machine %d); the libraries are for x86-64", f.machine)
	}
	if r.Runtime == StaticRuntime {
		worse(Fails, "it contains NVIDIA's static runtime, which accepts NVIDIA's driver only (error 103): link it with the shared one (nvcc -cudart shared)")
	}
	for _, l := range r.Libraries {
		switch {
		case l.verdict == Runs:
		case l.Linked:
			worse(l.verdict, "it needs %s: %s", l.Name, l.Note)
		default:
			note("it may load %s: %s", l.Name, l.Note)
		}
	}
	var code, made, relocatable []string
	for _, img := range r.Images {
		switch {
		case strings.HasPrefix(img.Kind, "relocatable"):
			relocatable = append(relocatable, img.Where)
		case img.Kind == "fat binary" && len(img.PTX) == 0 && len(img.Code) > 0:
			code = append(code, img.Code...)
		case img.Compiler == NVIDIA:
			made = append(made, img.Where)
		}
	}
	if len(code) > 0 {
		slices.Sort(code)
		worse(NeedsHardware, "some of its kernels are machine code without PTX, for %s: compile it with PTX (nvcc -gencode arch=compute_80,code=compute_80)", strings.Join(slices.Compact(code), ", "))
	}
	if len(made) > 0 {
		worse(NeedsHardware, "NVIDIA's compiler made its kernels (%s), and their licence is for NVIDIA's GPUs", made[0])
	}
	if len(relocatable) > 0 {
		note("it has relocatable device code (%s), which only the linked fat binary beside it uses", relocatable[0])
	}
	if r.Runtime == Offloading {
		note("it offloads through libgomp: the guest needs libgomp-plugin-nvptx.so.1")
	}
}
