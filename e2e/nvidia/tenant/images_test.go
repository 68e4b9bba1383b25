package tenant

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"vgpud/ptx"
)

// TestImagesThatAreRefused holds that one has a header and no more, so that whoever reads it
// has to look, and that the other is code but for an instruction.
func TestImagesThatAreRefused(t *testing.T) {
	image := HalfCubin()
	var h elf.Header64
	if err := binary.Read(bytes.NewReader(image), binary.LittleEndian, &h); err != nil {
		t.Fatal(err)
	}
	if string(h.Ident[:len(elf.ELFMAG)]) != elf.ELFMAG || h.Shnum == 0 || h.Shoff < uint64(len(image)) {
		t.Errorf("%+v, of %d bytes", h, len(image))
	}
	if _, err := elf.NewFile(bytes.NewReader(image)); err == nil {
		t.Error("the cubin is whole")
	}
	if _, err := ptx.Parse(string(BadPTX())); err != nil {
		t.Errorf("the instruction is not the compiler's to refuse: %v", err)
	}
}
