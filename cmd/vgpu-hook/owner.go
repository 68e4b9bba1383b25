package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"regexp"
	"strconv"
	"strings"

	"vgpud/mediator/libvirt/domain"
)

// owner returns the user and group that a domain's QEMU runs as: the domain's own setting, or else
// the hook's configuration, libvirt's configuration, the users of distributions' builds of libvirt,
// or root.
func (c *config) owner(own *domain.Owner) (uid, gid int, err error) {
	o := domain.Owner{User: c.User, Group: c.Group}
	if own != nil {
		o = *own
	}
	if o.User == "" {
		if o, err = readQEMUConf(c.QEMUConf); err != nil {
			return 0, 0, err
		}
	}
	if o.User != "" {
		return resolve(o)
	}
	for _, name := range []string{"libvirt-qemu", "qemu"} {
		uid, gid, err := resolve(domain.Owner{User: name})
		if err == nil {
			return uid, gid, nil
		}
	}
	return 0, 0, nil
}

var qemuConfLine = regexp.MustCompile(`(?m)^[ \t]*(user|group)[ \t]*=[ \t]*"([^"\n]*)"`)

// readQEMUConf reads the user from libvirt's configuration of its QEMU driver.
func readQEMUConf(path string) (o domain.Owner, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err != nil {
		return o, fmt.Errorf("find the user that QEMU runs as: %w", err)
	}
	for _, m := range qemuConfLine.FindAllSubmatch(b, -1) {
		if string(m[1]) == "user" {
			o.User = string(m[2])
		} else {
			o.Group = string(m[2])
		}
	}
	return o, nil
}

// resolve looks the numbers up. As in libvirt's labels, a value after a plus sign is a number, and
// any other is a name if there is one.
func resolve(o domain.Owner) (uid, gid int, err error) {
	var u *user.User
	if !strings.HasPrefix(o.User, "+") {
		u, _ = user.Lookup(o.User) // else it may be a number
	}
	if u == nil {
		if uid, err = parseID(o.User); err != nil {
			return 0, 0, fmt.Errorf("QEMU should run as user %q, which does not exist", o.User)
		}
		u, _ = user.LookupId(strconv.Itoa(uid)) // for its group
	} else if uid, err = parseID(u.Uid); err != nil {
		return 0, 0, fmt.Errorf("user %s: %w", o.User, err)
	}
	switch {
	case o.Group == "" && u != nil:
		gid, err = parseID(u.Gid)
		return uid, gid, err
	case o.Group == "":
		return uid, 0, nil
	}
	if !strings.HasPrefix(o.Group, "+") {
		if g, err := user.LookupGroup(o.Group); err == nil {
			gid, err = parseID(g.Gid)
			return uid, gid, err
		}
	}
	if gid, err = parseID(o.Group); err != nil {
		return 0, 0, fmt.Errorf("QEMU should run as group %q, which does not exist", o.Group)
	}
	return uid, gid, nil
}

// parseID parses the number of a user or a group, with or without a plus sign.
func parseID(s string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 10, 31)
	return int(n), err
}
