package main

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTrusted(t *testing.T) {
	for name, test := range map[string]struct {
		st   unix.Stat_t
		file bool
		err  string
	}{
		"a file":                {unix.Stat_t{Mode: unix.S_IFREG | 0o644, Nlink: 1}, true, ""},
		"a directory":           {unix.Stat_t{Mode: unix.S_IFDIR | 0o711, Nlink: 3}, false, ""},
		"root's":                {unix.Stat_t{Mode: unix.S_IFREG | 0o600, Nlink: 1, Uid: 0}, true, ""},
		"another's":             {unix.Stat_t{Mode: unix.S_IFREG | 0o644, Nlink: 1, Uid: 64055}, true, "belongs to user 64055"},
		"another's directory":   {unix.Stat_t{Mode: unix.S_IFDIR | 0o755, Nlink: 1, Uid: 64055}, false, "belongs to user 64055"},
		"for a group":           {unix.Stat_t{Mode: unix.S_IFREG | 0o664, Nlink: 1}, true, "mode 0664"},
		"for all":               {unix.Stat_t{Mode: unix.S_IFREG | 0o646, Nlink: 1}, true, "mode 0646"},
		"a directory for all":   {unix.Stat_t{Mode: unix.S_IFDIR | 0o1777, Nlink: 1}, false, "mode 1777"},
		"two names":             {unix.Stat_t{Mode: unix.S_IFREG | 0o644, Nlink: 2}, true, "2 names"},
		"large":                 {unix.Stat_t{Mode: unix.S_IFREG | 0o644, Nlink: 1, Size: maxFile + 1}, true, "65537 bytes"},
		"a pipe":                {unix.Stat_t{Mode: unix.S_IFIFO | 0o644, Nlink: 1}, true, "another kind"},
		"a device":              {unix.Stat_t{Mode: unix.S_IFCHR | 0o644, Nlink: 1}, true, "another kind"},
		"a directory as a file": {unix.Stat_t{Mode: unix.S_IFDIR | 0o755, Nlink: 1}, true, "another kind"},
	} {
		err := trusted(&test.st, 0, test.file)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, want %q", name, err, test.err)
		}
	}
}
