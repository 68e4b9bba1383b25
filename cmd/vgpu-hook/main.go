// Command vgpu-hook is libvirt's hook for QEMU domains. libvirt calls it when a
// domain starts and ends, with the domain's XML on standard input:
//
//	vgpu-hook DOMAIN OPERATION SUB-OPERATION EXTRA
//
// It has the daemon make the virtual GPUs that the domain's metadata asks for
// before its QEMU starts, and takes them away when that has ended. A domain that
// asks for none is let through at once. Where a virtual GPU can't be had, one
// line on standard error says why, which libvirt shows, and the domain does not
// start.
//
// It never calls libvirt, which waits for it. Its standard output stays empty,
// since libvirt takes what migrate and restore write there for the domain's XML.
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

	"vgpud/mediator/api"
	"vgpud/mediator/libvirt/domain"
)

// The exit codes.
const (
	exitOK      = 0
	exitRefused = 1
	exitUsage   = 2
)

// maxInput is how much of standard input is read, in bytes: more than libvirt
// lets a domain's XML have.
const maxInput = 32 << 20

func main() { os.Exit(run()) }

func run() int {
	if len(os.Args) < 3 || strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintln(os.Stderr, "usage: vgpu-hook DOMAIN OPERATION SUB-OPERATION EXTRA, with the domain's XML on standard input: libvirt calls it as a hook")
		return exitUsage
	}
	name, operation := os.Args[1], operations[os.Args[2]]
	if operation.act == nil {
		return exitOK // one that needs nothing, or of a later libvirt
	}
	xml, err := io.ReadAll(io.LimitReader(os.Stdin, maxInput))
	if err == nil {
		err = call(operation, name, xml, domain.Concerns(xml))
	}
	switch {
	case err == nil:
		return exitOK
	case operation.binding:
		say("vgpud: ", name, err)
		return exitRefused
	default:
		warn(name, err)
		return exitOK
	}
}

// call carries out an operation on a domain. ours is whether its XML may have
// something of ours.
func call(o operation, name string, xml []byte, ours bool) error {
	if !ours && !o.ends {
		return nil // whatever the configuration is like
	}
	c, err := readConfig()
	if err != nil {
		return err
	}
	if !ours && !c.served(xml) {
		return nil
	}
	client := api.NewClient(c.Socket)
	defer client.Close()
	h := hook{config: c, daemon: client, warn: func(err error) { warn(name, err) }}
	return h.explain(o.act(&h, context.Background(), xml))
}

// warn says what is wrong where nothing is refused.
func warn(domain string, err error) { say("vgpud: warning: ", domain, err) }

// say says what is wrong with a domain, on one line. libvirt shows standard error
// only of a hook that refuses, and not even then where it starts a domain from a
// state that it saved itself; so the line goes to the system's log too, if there
// is one.
func say(prefix, domain string, err error) {
	line := strings.ReplaceAll(fmt.Sprintf("domain %s: %v", domain, err), "\n", "; ")
	fmt.Fprintln(os.Stderr, prefix+line)
	if os.Getenv(noSyslog) != "" {
		return
	}
	if w, err := syslog.New(syslog.LOG_WARNING|syslog.LOG_DAEMON, "vgpu-hook"); err == nil {
		_ = w.Warning(line) // it is on standard error
		_ = w.Close()
	}
}
