package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// look prints what is at the given paths: a directory's names, a link's target, a file's contents;
// one per line. Since the guest has no other programs, tests use it to see how the kernel set up a
// device: `/init look PATH...`.
func look(w io.Writer, paths []string) error {
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		var text []byte
		switch {
		case info.IsDir():
			entries, err := os.ReadDir(path)
			if err != nil {
				return err
			}
			for _, e := range entries {
				text = fmt.Appendln(text, e.Name())
			}
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text = []byte(target)
		default:
			if text, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		text = append(bytes.TrimRight(text, "\n"), '\n')
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}
