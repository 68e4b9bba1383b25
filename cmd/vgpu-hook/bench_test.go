package main

import (
	"bytes"
	"os/exec"
	"testing"

	"vgpud/mediator/libvirt/domain"
)

// BenchmarkHook measures a whole call, from the process's start to its end: the hook's cost for the
// start of any domain, and, without the daemon's part, for that of one with a virtual GPU.
func BenchmarkHook(b *testing.B) {
	path, err := exec.LookPath("vgpu-hook")
	if err != nil {
		b.Fatal(err)
	}
	d, err := startDaemon()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := d.stop(); err != nil {
			b.Error(err)
		}
	})
	web1, err := domain.Define([]byte(plain), domain.Devices{{}}, "/run/vgpud")
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv(socketVariable, d.socket)
	b.Setenv(configVariable, "/nonexistent")
	b.Setenv(noSyslog, "1")
	for _, test := range []struct {
		name, operation string
		xml             []byte
	}{{"without", "prepare", []byte(plain)}, {"prepare", "prepare", web1}, {"start", "start", web1}, {"release", "release", web1}} {
		b.Run(test.name, func(b *testing.B) {
			for b.Loop() {
				c := exec.Command(path, "web1", test.operation, "begin", "-")
				c.Stdin = bytes.NewReader(test.xml)
				if out, err := c.CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
		})
	}
}
