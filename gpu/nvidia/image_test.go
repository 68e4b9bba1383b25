package nvidia

import (
	"os"
	"testing"
)

func TestImageBytes(t *testing.T) {
	const text = ".version 7.0\n.target sm_70\n.address_size 64\n.global .align 4 .f32 a[100];\n.const .u64 b = 1;\n"
	if n, sure := imageBytes([]byte(text + "\x00")); !sure || n != uint64(len(text)+1+400+8) {
		t.Errorf("PTX: %d bytes, %v", n, sure)
	}
	// This program is an ELF file too.
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if n, sure := imageBytes(self); !sure || n < uint64(len(self)) {
		t.Errorf("ELF of %d bytes: %d, %v", len(self), n, sure)
	}
	if _, sure := imageBytes([]byte("\x7fELF and nothing more")); sure {
		t.Error("an ELF file that is none is known")
	}
}
