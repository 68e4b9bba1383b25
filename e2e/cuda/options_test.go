package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNvccOptions compiles programs by command lines for nvcc, as build systems have them, and looks
// at what came of it.
func TestNvccOptions(t *testing.T) {
	compileCUDA(t, "rt_basic.cu") // puts the toolkit together
	compiler := filepath.Join(folder(t), "cuda/bin/cuda-cc")
	// CUDA's headers include those of assert, printf and time.
	const source = "__global__ void k(float *p) { register float f = *p; assert(f); *p = f * f + *p; }\nint main() { k<<<1, 1>>>(nullptr); return printf(\"%d\", time(nullptr) == 0); }\n"
	for _, tt := range []struct {
		name     string
		file     string
		commands []string // their arguments
		has, not string   // in the last output
	}{
		{"lists for the host's compiler", "a.cu", []string{"-Xcompiler -Wall,-Wextra -Xcompiler=-O1 -std c++17 a.cu plain.cpp -o a.o"}, "cudaLaunchKernel", ""},
		{"architectures", "a.cu", []string{"-gencode arch=compute_60,code=sm_60 -arch sm_90 -ptx a.cu -o a.ptx"}, ".target sm_80", "sm_90"},
		{"debugging", "a.cu", []string{"-g -c a.cu -o a.o"}, "cudaLaunchKernel", ""},
		{"another name of source", "a.cpp", []string{"--x cu -c a.cpp -o a.o", "a.o -o a"}, "cudaLaunchKernel", "cudaLaunchKernel_ptsz"},
		{"a stream for each thread", "a.cu", []string{"-default-stream per-thread a.cu -o a"}, "cudaLaunchKernel_ptsz", ""},
		{"a stream for each thread by its macro", "a.cu", []string{"-DCUDA_API_PER_THREAD_DEFAULT_STREAM a.cu -o a"}, "cudaLaunchKernel_ptsz", ""},
		{"the default stream", "a.cu", []string{"--default-stream legacy a.cu -o a"}, "cudaLaunchKernel", "cudaLaunchKernel_ptsz"},
		{"products and sums apart", "a.cu", []string{"-O2 -fmad=false -ptx a.cu -o a.ptx"}, "mul.rn.f32", "fma.rn.f32"},
		{"products and sums in one", "a.cu", []string{"-O2 -ptx a.cu -o a.ptx"}, "fma.rn.f32", ""},
		{
			"what is about machine code", "a.cu",
			[]string{"-maxrregcount 32 -Xptxas -v -lineinfo --threads 2 -diag-suppress 177 -ccbin g++ -res-usage -cudart shared -G a.cu -o a -lcudadevrt -lcudart_static -lnvToolsExt"},
			"libcudart.so.12", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			// Sources of the host alone may have types of the same names.
			const plain = "typedef struct { float x, y; } float2;\nfloat f(float2 v) { return v.x; }\n"
			if err := os.WriteFile(filepath.Join(dir, "plain.cpp"), []byte(plain), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, tt.file), []byte(source), 0o600); err != nil {
				t.Fatal(err)
			}
			var output string
			for _, c := range tt.commands {
				args := strings.Fields(c)
				for i, a := range args {
					if a == "-o" {
						output = args[i+1]
					}
				}
				cmd := exec.Command(compiler, args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "CUDA_CLANG="+clang(t))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", args, err, out)
				}
			}
			text, err := os.ReadFile(filepath.Join(dir, output))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), tt.has) {
				t.Errorf("%s has no %q", output, tt.has)
			}
			if tt.not != "" && strings.Contains(string(text), tt.not) {
				t.Errorf("%s has %q", output, tt.not)
			}
		})
	}
}
