// Command vgpu-hook is libvirt's hook for QEMU domains. libvirt calls it when a domain starts and
// ends, with the domain's XML on standard input:
//
//	vgpu-hook DOMAIN OPERATION SUB-OPERATION EXTRA
//
// Before a domain's QEMU starts, the hook makes the daemon create the virtual GPUs that the
// domain's metadata asks for, and when QEMU has ended it makes the daemon delete them. Domains that
// ask for none are let through at once. If the configuration has a section nova, instances of
// OpenStack's Nova get what Placement granted them. If a virtual GPU can't be created, one line on standard
// error gives the reason, which libvirt shows, and the domain does not start.
//
// The hook never calls libvirt, which waits for it. Its standard output stays empty, because
// libvirt takes the output of migrate and restore for the domain's XML.
//
// Exit codes: 0, 1 refused, 2 bad usage.
package main

import (
	"context"
	"fmt"
	"io"
	"log/syslog"
	"os"
	"strings"

	"vgpud/cmd/internal/version"
	"vgpud/mediator/api"
	"vgpud/mediator/libvirt/domain"
)

// The exit codes.
const (
	exitOK      = 0
	exitRefused = 1
	exitUsage   = 2
)

// maxInput bounds standard input, in bytes: more than libvirt's limit of a domain's XML.
const maxInput = 32 << 20

func main() { os.Exit(run()) }

func run() int {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("vgpu-hook version", version.String())
		return exitOK
	}
	if len(os.Args) < 3 || strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintln(os.Stderr, "usage: vgpu-hook DOMAIN OPERATION SUB-OPERATION EXTRA, with the domain's XML on standard input: libvirt calls it as a hook")
		return exitUsage
	}
	name, operation := os.Args[1], operations[os.Args[2]]
	if operation.act == nil {
		return exitOK // nothing to do, or an operation of a later libvirt
	}
	xml, err := io.ReadAll(io.LimitReader(os.Stdin, maxInput))
	if err == nil {
		err = call(operation, name, xml)
	}
	switch {
	case err == nil:
		return exitOK
	case operation.refuses:
		report("vgpud: ", name, err)
		return exitRefused
	default:
		warn(name, err)
		return exitOK
	}
}

// call carries out an operation on a domain.
func call(o operation, name string, xml []byte) error {
	// Both may be wrong: they only search the bytes, of which tenants chose some.
	concerned, nova := domain.Concerns(xml), domain.IsInstance(xml)
	if !concerned && !nova && !o.ends {
		return nil // even if the configuration is invalid
	}
	c, err := readConfig()
	if err != nil {
		return err
	}
	nova = nova && c.Nova != nil
	if !concerned && !nova && !c.served(xml) {
		return nil
	}
	client := api.NewClient(c.Socket)
	defer client.Close()
	h := hook{config: c, daemon: explained{client, c.Socket}, warn: func(err error) { warn(name, err) }}
	if nova {
		v, err := domain.ParseInstance(xml)
		if err != nil {
			return err
		}
		if v != nil && !v.Defined {
			return h.onInstance(context.Background(), o, v, xml)
		}
	}
	return o.act(&h, context.Background(), xml)
}

// warn reports an error that refuses nothing.
func warn(domain string, err error) { report("vgpud: warning: ", domain, err) }

// report prints an error about a domain on one line. libvirt shows a hook's standard error only if
// the hook refuses, and not even then if it starts the domain from a state that it saved itself, so
// the line goes to the system's log too, if there is one.
func report(prefix, domain string, err error) {
	line := strings.ReplaceAll(fmt.Sprintf("domain %s: %v", domain, err), "\n", "; ")
	fmt.Fprintln(os.Stderr, prefix+line)
	if os.Getenv(noSyslog) != "" {
		return
	}
	if w, err := syslog.New(syslog.LOG_WARNING|syslog.LOG_DAEMON, "vgpu-hook"); err == nil {
		_ = w.Warning(line) // standard error has it already
		_ = w.Close()
	}
}
