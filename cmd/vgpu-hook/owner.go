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

// owner is the user and group that a domain's QEMU runs as: what the domain says
// itself, else the hook's configuration, libvirt's, or the users that libvirt is
// built for by distributions; else root.
func (c *config) owner(said *domain.Owner) (uid, gid int, err error) {
	who := domain.Owner{User: c.User, Group: c.Group}
	if said != nil {
		who = *said
	}
	if who.User == "" {
		if who, err = readQEMUConf(c.QEMUConf); err != nil {
			return 0, 0, err
		}
	}
	if who.User != "" {
		return resolve(who)
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

// readQEMUConf finds the user in libvirt's configuration of its QEMU driver.
func readQEMUConf(path string) (who domain.Owner, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return who, nil
	}
	if err != nil {
		return who, fmt.Errorf("find out as whom QEMU runs: %w", err)
	}
	for _, m := range qemuConfLine.FindAllSubmatch(b, -1) {
		if string(m[1]) == "user" {
			who.User = string(m[2])
		} else {
			who.Group = string(m[2])
		}
	}
	return who, nil
}

// resolve finds the numbers. As with libvirt's labels, one behind a plus sign is
// a number, and anything else a name if there is such a one.
func resolve(who domain.Owner) (uid, gid int, err error) {
	var u *user.User
	if !strings.HasPrefix(who.User, "+") {
		u, _ = user.Lookup(who.User) // else it may be a number
	}
	if u == nil {
		if uid, err = parseID(who.User); err != nil {
			return 0, 0, fmt.Errorf("QEMU is to run as the user %q: there is none of that name", who.User)
		}
		u, _ = user.LookupId(strconv.Itoa(uid)) // for its group
	} else if uid, err = parseID(u.Uid); err != nil {
		return 0, 0, fmt.Errorf("user %s: %w", who.User, err)
	}
	switch {
	case who.Group == "" && u != nil:
		gid, err = parseID(u.Gid)
		return uid, gid, err
	case who.Group == "":
		return uid, 0, nil
	}
	if !strings.HasPrefix(who.Group, "+") {
		if g, err := user.LookupGroup(who.Group); err == nil {
			gid, err = parseID(g.Gid)
			return uid, gid, err
		}
	}
	if gid, err = parseID(who.Group); err != nil {
		return 0, 0, fmt.Errorf("QEMU is to run as the group %q: there is none of that name", who.Group)
	}
	return uid, gid, nil
}

// parseID reads the number of a user or a group, with or without a plus sign.
func parseID(s string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 10, 31)
	return int(n), err
}
