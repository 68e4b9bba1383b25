package main

import (
	"fmt"
	"io"
)

// Types of entries, as in st_mode.
const (
	modeFile   = 0o100000
	modeDir    = 0o040000
	modeDevice = 0o020000 // a character device
)

// entry is a member of an archive.
type entry struct {
	name         string // relative to the root
	mode         uint32 // type and permissions
	major, minor uint32 // of a device
	data         []byte
}

// trailer is the name of the entry that ends an archive.
const trailer = "TRAILER!!!"

// write writes entries as a cpio archive in the "new ASCII" format (the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst). Times are 0 and everything belongs
// to root.
func write(w io.Writer, entries []entry) error {
	for i, e := range append(entries[:len(entries):len(entries)], entry{name: trailer}) {
		if int64(len(e.data)) > 1<<32-1 {
			return fmt.Errorf("%s: %d bytes don't fit into an initramfs", e.name, len(e.data))
		}
		ino, links := i+1, 1
		// magic, ino, mode, uid, gid, nlink, mtime, filesize, maj, min, rmaj, rmin, namesize with
		// its NUL, and an unused checksum.
		head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
			ino, e.mode, 0, 0, links, 0, len(e.data), 0, 0, e.major, e.minor, len(e.name)+1, 0, e.name)
		for _, part := range [][]byte{[]byte(head), e.data} {
			if _, err := w.Write(part); err != nil {
				return err
			}
			if _, err := w.Write(make([]byte, -len(part)&3)); err != nil {
				return err
			}
		}
	}
	return nil
}
