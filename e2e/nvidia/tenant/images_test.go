package tenant

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"vgpud/ptx"
)

// TestImagesThatAreRefused checks that the cubin has a header and nothing after it, and that the
// PTX has one fault: with the end of its first "ret" put back, it parses.
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
	if _, err := ptx.Parse(string(BadPTX())); err == nil {
		t.Error("the PTX has no fault")
	}
	mended := strings.Replace(string(BadPTX()), "ret\n", "ret;\n", 1)
	if _, err := ptx.Parse(mended); err != nil {
		t.Errorf("the PTX has another fault: %v", err)
	}
}
