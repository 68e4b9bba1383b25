package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// flags lists the options of QEMU 11.1 that take no argument. All others take one.
var flags = map[string]bool{
	"S": true, "daemonize": true, "enable-kvm": true, "enable-sync-profile": true, "full-screen": true,
	"h": true, "help": true, "jitdump": true, "mem-prealloc": true, "no-fd-bootchk": true,
	"no-reboot": true, "no-shutdown": true, "no-user-config": true, "nodefaults": true,
	"nographic": true, "only-migratable": true, "perfmap": true, "preconfig": true, "s": true,
	"semihosting": true, "snapshot": true, "usb": true, "version": true, "win2k-hack": true,
	"xen-attach": true, "xen-domid-restrict": true,
	// Of earlier versions.
	"enable-fips": true, "no-acpi": true, "no-hpet": true, "portrait": true, "singlestep": true,
}

// canonical matches a UUID as libvirt writes it.
var canonical = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// domainUUID returns the UUID of the domain that QEMU's arguments are for, or "" if they name none.
//
// Some values are a tenant's, such as a kernel's command line, so a value that reads "-uuid" does not
// count. With an option that the table of flags lacks, what is an option and what is a value can't
// be told any more: the UUID is then missing or there are two, and both are refused.
func domainUUID(args []string) (string, error) {
	uuid, found := "", false
	for i := 0; i < len(args); i++ {
		name, isOption := strings.CutPrefix(args[i], "-")
		if !isOption || name == "" {
			continue // an image, or standard input
		}
		name = strings.TrimPrefix(name, "-")
		switch {
		case flags[name]:
			continue
		case name != "uuid":
		case found:
			return "", errors.New("QEMU's arguments have -uuid more than once, so the domain is not known")
		case i+1 == len(args):
			return "", errors.New("QEMU's argument -uuid has no value")
		default:
			uuid, found = args[i+1], true
		}
		i++ // the value
	}
	switch {
	case found && !canonical.MatchString(uuid):
		return "", fmt.Errorf("QEMU's argument -uuid is %.60q: want a UUID of lower-case hexadecimal digits", uuid)
	case !found && unread(args):
		return "", errors.New("QEMU's arguments have -uuid where the value of another option is expected, so the domain is not known: this QEMU may have options that this version of vgpu-qemu does not know")
	}
	return uuid, nil
}

// unread reports whether -uuid with a UUID is among the arguments.
func unread(args []string) bool {
	for i := range len(args) - 1 {
		if (args[i] == "-uuid" || args[i] == "--uuid") && canonical.MatchString(args[i+1]) {
			return true
		}
	}
	return false
}
