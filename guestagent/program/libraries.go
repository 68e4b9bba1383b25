package program

import (
	"bytes"
	"slices"
	"strings"
)

// Library is a library of CUDA or of CUDA's neighbourhood that a program uses.
type Library struct {
	Name string `json:"name"`
	// Linked means that the program does not start without it. Otherwise the file has its name, and
	// the program may load it when it runs.
	Linked bool `json:"linked"`
	// Provided means that this project's own library takes its place.
	Provided bool   `json:"provided"`
	Note     string `json:"note,omitempty"`

	verdict Verdict // of programs that use it
}

// known describes libraries by the beginning of their names. The first that matches counts.
var known = []struct {
	prefix   string
	provided bool
	verdict  Verdict
	note     string
}{
	{"libcuda.so", true, Runs, ""},
	{"libcudart.so.11.0", true, Runs, ""},
	{"libcudart.so.12", true, Runs, ""},
	{"libcudart.so.13", true, Runs, ""},
	{"libcudart.so", false, Fails, "runtimes of CUDA 11, 12 and 13 are provided, this one is not"},
	{"libnvrtc.so", false, NeedsHardware, "NVIDIA's compiler: what it compiles runs on NVIDIA's GPUs only"},
	{"libnvvm.so", false, NeedsHardware, "NVIDIA's compiler: what it compiles runs on NVIDIA's GPUs only"},
	{"libnvidia-ml.so", false, Fails, "NVIDIA's management library is not provided"},
	{"libcublas", false, Fails, staticInside},
	{"libcufft", false, Fails, staticInside},
	{"libcurand", false, Fails, staticInside},
	{"libcusolver", false, Fails, staticInside},
	{"libcusparse", false, Fails, staticInside},
	{"libcudnn", false, Fails, staticInside},
	{"libcutensor", false, Fails, staticInside},
	{"libnccl.so", false, Fails, staticInside},
	{"libnpp", false, Fails, staticInside},
	{"libnvjpeg", false, Fails, staticInside},
	{"libcufile", false, Fails, staticInside},
}

const staticInside = "NVIDIA's library with a static runtime inside, which accepts NVIDIA's driver only"

// describe returns what is known of a library.
func describe(name string, linked bool) (Library, bool) {
	for _, k := range known {
		if strings.HasPrefix(name, k.prefix) {
			return Library{Name: name, Linked: linked, Provided: k.provided, Note: k.note, verdict: k.verdict}, true
		}
	}
	return Library{}, false
}

// libraries returns the libraries that the file is linked with or names.
func libraries(f *file) []Library {
	list := []Library{}
	add := func(name string, linked bool) {
		if slices.ContainsFunc(list, func(l Library) bool { return l.Name == name }) {
			return
		}
		if l, ok := describe(name, linked); ok {
			list = append(list, l)
		}
	}
	for _, name := range f.needed() {
		add(name, true)
	}
	linked := len(list)
	for _, k := range known {
		for _, name := range namedIn(f.b, k.prefix) {
			add(name, false)
		}
	}
	slices.SortFunc(list[linked:], func(a, b Library) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// maxNames bounds the names that are found of one library.
const maxNames = 16

// namedIn returns the names of libraries that begin with prefix and are strings of their own in b:
// what a program passes to dlopen. A directory may precede them.
func namedIn(b []byte, prefix string) (names []string) {
	for pos := 0; len(names) < maxNames; {
		i := bytes.Index(b[pos:], []byte(prefix))
		if i < 0 {
			break
		}
		start := pos + i
		end := start + len(prefix)
		for end < len(b) && end-start < 64 && libraryByte(b[end]) {
			end++
		}
		pos = end
		whole := end < len(b) && b[end] == 0 && (start == 0 || b[start-1] == 0 || b[start-1] == '/')
		if name := string(b[start:end]); whole && strings.Contains(name, ".so") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func libraryByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}
