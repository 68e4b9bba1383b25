package doctor

import (
	"os"
	"strings"
	"testing"
)

// TestKVMRuns: with a KVM that carries out the simplest instructions, a VM that does what it should is
// told from one that does something else, or fails.
func TestKVMRuns(t *testing.T) {
	const device = "/dev/kvm"
	if f, err := os.OpenFile(device, os.O_RDWR, 0); err != nil {
		t.Skipf("this host has no KVM for this user: %v", err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	try := func(program []byte) error {
		return tryKVM(device, func(device, vm, cpu int) error { return execute(device, vm, cpu, program) })
	}
	if err := try(shiftAndHalt(false)); err != nil {
		t.Skipf("this host's KVM runs no VM: %v", err)
	}
	for name, c := range map[string]struct {
		program []byte
		want    string
	}{
		"halts with another result": {[]byte{0xf4}, "computed 0, want 16"},
		"is undefined":              {[]byte{0x0f, 0x0b}, "stopped for reason"}, // ud2, and no handler for it
	} {
		if err := try(c.program); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a program that %s: %v, want %q", name, err, c.want)
		}
	}
	t.Logf("this host's KVM, with what a kernel needs: %v", TryKVM(device))
}
