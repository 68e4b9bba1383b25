package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// buildOf names the build of vgpud that is in bin: the commit of tree, and a digest of the programs
// and libraries that the tests use.
func buildOf(ctx context.Context, tree, bin string) (string, error) {
	digest := sha256.New()
	for _, name := range []string{"vgpud", "lib/libcuda.so.1", "lib/libvgpucuda.so"} {
		if err := addFile(digest, filepath.Join(bin, name)); err != nil {
			return "", err
		}
	}
	commit, err := exec.CommandContext(ctx, "git", "-C", tree, "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*").Output()
	if err != nil {
		commit = []byte("no commit") // the source isn't a checkout
	}
	return fmt.Sprintf("%s %x", bytes.TrimSpace(commit), digest.Sum(nil)[:4]), nil
}

func addFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
