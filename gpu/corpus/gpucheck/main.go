// Command gpucheck compares the corpus's references with a real GPU. It writes every case to a file
// that the runner beside it performs through CUDA's driver, and checks the runner's results.
//
//	gpucheck [-seed N] export DIR   writes DIR/KERNEL.SIZE.case and DIR/ARCH/KERNEL.ptx
//	gpucheck [-seed N] verify DIR   checks every DIR/ARCH/KERNEL.SIZE.out against its reference
//
// [corpus.Case.File] describes a case file. An out file holds the contents of all buffers, one
// after another; a printed file holds the kernels' output.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"vgpud/gpu/corpus"
)

func main() {
	seed := flag.Uint64("seed", 1, "`seed` of the cases' inputs; export and verify must use the same")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: gpucheck [-seed N] export|verify DIR")
		flag.PrintDefaults()
	}
	flag.Parse()
	commands := map[string]func(seed uint64, dir string) error{"export": export, "verify": verify}
	command := commands[flag.Arg(0)]
	if command == nil || flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := command(*seed, flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "gpucheck:", err)
		os.Exit(1)
	}
}

// eachCase calls f for every kernel and size, with the case and the base name of its files.
func eachCase(seed uint64, f func(c *corpus.Case, name string) error) error {
	for _, k := range corpus.All() {
		for _, size := range corpus.Sizes() {
			if err := f(k.Case(size, seed), k.Name+"."+size.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

func export(seed uint64, dir string) error {
	for _, arch := range corpus.Arches() {
		if err := exportPTX(filepath.Join(dir, string(arch)), arch); err != nil {
			return fmt.Errorf("exporting PTX for %s: %w", arch, err)
		}
	}
	return eachCase(seed, func(c *corpus.Case, name string) error {
		if err := os.WriteFile(filepath.Join(dir, name+".case"), c.File(), 0o644); err != nil {
			return fmt.Errorf("exporting %v: %w", c, err)
		}
		return nil
	})
}

func exportPTX(dir string, arch corpus.Arch) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, k := range corpus.All() {
		if err := os.WriteFile(filepath.Join(dir, k.Name+".ptx"), []byte(k.PTX(arch)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// verify prints one line for every case that fails and a sum at the end.
func verify(seed uint64, dir string) error {
	passed, failed := 0, 0
	err := eachCase(seed, func(c *corpus.Case, name string) error {
		for _, arch := range corpus.Arches() {
			if err := verifyCase(c, filepath.Join(dir, string(arch), name)); err != nil {
				failed++
				fmt.Printf("FAIL %s %v\n", arch, err)
			} else {
				passed++
			}
		}
		return nil
	})
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if err == nil && failed > 0 {
		err = errors.New("the GPU and the references differ")
	}
	return err
}

func verifyCase(c *corpus.Case, path string) error {
	out, err := os.ReadFile(path + ".out")
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	var errs []error
	for i := range c.Buffers {
		b := &c.Buffers[i]
		if len(out) < b.Size {
			return fmt.Errorf("%v: %s.out ends within buffer %s", c, path, b.Name)
		}
		errs = append(errs, c.Check(b.Name, out[:b.Size]))
		out = out[b.Size:]
	}
	if len(out) != 0 {
		errs = append(errs, fmt.Errorf("%v: %s.out has %d bytes too many", c, path, len(out)))
	}
	printed, err := os.ReadFile(path + ".printed")
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	errs = append(errs, c.CheckPrinted(string(printed)))
	if err := errors.Join(errs...); err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "\nFAIL "))
	}
	return nil
}
