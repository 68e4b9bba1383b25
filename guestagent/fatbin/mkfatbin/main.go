// Command mkfatbin writes a fat binary of PTX files, for clang's -fcuda-include-gpubinary, which
// embeds it in a program:
//
//	go run vgpud/guestagent/fatbin/mkfatbin -o kernels.fatbin kernels.ptx
//	clang++ --cuda-host-only -Xclang -fcuda-include-gpubinary -Xclang kernels.fatbin -c kernels.cu
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"vgpud/guestagent/fatbin"
	"vgpud/ptx"
)

func main() {
	out := flag.String("o", "", "file to write")
	how := flag.String("compress", "lz4", "none, lz4 or zstd")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: mkfatbin -o FILE [-compress none|lz4|zstd] FILE.ptx…")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *out == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(*out, *how, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mkfatbin:", err)
		os.Exit(1)
	}
}

// pure matches the declarations of what a table of virtual functions names where a class has none.
// A C++ library for the host defines these, and there is none for the device.
var pure = regexp.MustCompile(`\.extern\s+\.func\s+(__cxa_(?:pure|deleted)_virtual)\s*(?:\(\s*\))?\s*;`)

// write writes a container of PTX files to out.
func write(out, how string, files []string) error {
	compression, ok := map[string]fatbin.Compression{"none": fatbin.Stored, "lz4": fatbin.LZ4, "zstd": fatbin.Zstd}[how]
	if !ok {
		return fmt.Errorf("compression %q: none, lz4 or zstd", how)
	}
	var images []fatbin.Image
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		m, err := ptx.Parse(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		sm, err := targetNumber(m)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		images = append(images, fatbin.Image{
			Kind: fatbin.PTX, Major: m.Version.Major, Minor: m.Version.Minor, SM: sm,
			Data: pure.ReplaceAll(text, []byte(".weak .func $1()\n{\n\ttrap;\n}")), Compression: compression,
		})
	}
	b, err := fatbin.Append(nil, images...)
	if err != nil {
		return err
	}
	return os.WriteFile(out, b, 0o644)
}

// targetNumber returns the number in a module's target: 80 for sm_80.
func targetNumber(m *ptx.Module) (int, error) {
	if len(m.Target) > 0 {
		if number, ok := strings.CutPrefix(m.Target[0], "sm_"); ok {
			return strconv.Atoi(strings.TrimRight(number, "af"))
		}
	}
	return 0, fmt.Errorf("the target %q is no sm_ architecture", strings.Join(m.Target, ", "))
}
