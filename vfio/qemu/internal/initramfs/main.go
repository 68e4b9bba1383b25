package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

func main() {
	out := flag.String("o", "", "write the archive to this `file`")
	flag.Parse()
	if err := pack(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "initramfs:", err)
		os.Exit(1)
	}
}

// pack writes an archive of the files in args, each in the form NAME=PATH.
func pack(out string, args []string) (err error) {
	entries := []entry{{name: "dev/console", mode: modeDevice | 0o600, major: 5, minor: 1}}
	for _, arg := range args {
		name, from, ok := strings.Cut(arg, "=")
		if !ok || name == "" || name != path.Clean(name) || path.IsAbs(name) {
			return fmt.Errorf("%q: want NAME=PATH, NAME relative to the guest's root", arg)
		}
		info, err := os.Stat(from)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if path.Ext(name) == ".ko" {
			data = unsigned(data)
		}
		entries = append(entries, entry{name: name, mode: modeFile | uint32(info.Mode().Perm()), data: data})
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	w := bufio.NewWriter(f)
	if err := write(w, withParents(entries)); err != nil {
		return err
	}
	return w.Flush()
}

// withParents adds the parent directories of entries, and sorts so that a directory precedes its
// contents.
func withParents(entries []entry) []entry {
	dirs := map[string]bool{}
	for _, e := range entries {
		for d := path.Dir(e.name); d != "."; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	for d := range dirs {
		entries = append(entries, entry{name: d, mode: modeDir | 0o755})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries
}
