package program

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
)

// Runtime is the way in which a program uses CUDA.
type Runtime string

// The ways.
const (
	NoCUDA        Runtime = "none"
	DriverAPI     Runtime = "driver API"
	SharedRuntime Runtime = "shared runtime"
	StaticRuntime Runtime = "static runtime"
	Offloading    Runtime = "GCC offloading" // through libgomp's plugin, which uses the driver API
)

// challengeTable is the name of the driver's export table by which NVIDIA's runtime asks whether
// the driver is NVIDIA's. A file that has it has that runtime inside.
//
// It is kept as text, so that this program's own file does not have it.
var challengeTable, _ = hex.DecodeString("d4082055bde6704b8d34ba123c66e1f2")

// maxFunctions bounds the functions listed of one program.
const maxFunctions = 4096

// cudaSymbols returns the functions of CUDA that the file imports, and whether it defines the
// runtime's own.
func cudaSymbols(f *file) (imported []string, defines bool) {
	seen := map[string]bool{}
	f.symbols(func(name string, defined bool) {
		runtime := strings.HasPrefix(name, "cuda") || strings.HasPrefix(name, "__cuda")
		driver := len(name) > 2 && strings.HasPrefix(name, "cu") && name[2] >= 'A' && name[2] <= 'Z'
		switch {
		case defined:
			// Compilers' code has functions such as __cuda_register_globals and cudaError_t's.
			defines = defines || name == "cudaMalloc" || name == "__cudaRegisterFatBinary"
		case (runtime || driver) && !seen[name] && len(imported) < maxFunctions:
			seen[name] = true
			imported = append(imported, name)
		}
	})
	slices.Sort(imported)
	return imported, defines
}

// runtimeOf returns how a program uses CUDA.
func runtimeOf(f *file, libs []Library, defines, offloads bool) Runtime {
	has := func(prefix string) bool {
		return slices.ContainsFunc(libs, func(l Library) bool { return strings.HasPrefix(l.Name, prefix) })
	}
	linked := slices.ContainsFunc(libs, func(l Library) bool { return l.Linked && strings.HasPrefix(l.Name, "libcudart.so") })
	switch {
	case bytes.Contains(f.b, challengeTable), defines && !linked && f.interp:
		return StaticRuntime
	case linked, has("libcudart.so"):
		return SharedRuntime
	case offloads:
		return Offloading
	case has("libcuda.so"):
		return DriverAPI
	}
	return NoCUDA
}
