// Command generate writes what the description of CUDA's driver API determines. It runs in
// cmd/libcuda, by go generate.
package main

import (
	"fmt"
	"os"

	"vgpud/cmd/libcuda/api"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	a, err := api.Load()
	if err != nil {
		return err
	}
	files, err := outputs(a)
	if err != nil {
		return err
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // sources are for everybody to read
			return err
		}
	}
	return nil
}

// outputs returns the generated files by path, which is relative to cmd/libcuda.
func outputs(a *api.API) (map[string]string, error) {
	calls, err := calls(a)
	if err != nil {
		return nil, err
	}
	results, err := results(a)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"include/cuda.h":                        header(a),
		"include/cudaTypedefs.h":                typedefs(a),
		"../../docs/cuda.md":                    docs(a),
		"front/stubs.c":                         stubs(a),
		"front/unbuilt.c":                       unbuilt(a),
		"front/names.c":                         names(a),
		"../../guestagent/cuda/calls_unsafe.go": calls,
		"../../guestagent/cuda/values.go":       results,
	}, nil
}
