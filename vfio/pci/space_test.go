package pci_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/vfio/pci"
)

// gpuLike returns a function shaped like the virtual GPU.
func gpuLike() pci.Function {
	return pci.Function{
		VendorID: 0x1f5a, DeviceID: 0x0001, SubsystemVendorID: 0x1f5a, SubsystemID: 0x0100,
		Revision: 2, Class: 0x120000, Extended: true,
		BARs: [pci.NumBARs]pci.BAR{
			0: {Size: 64 << 10},
			2: {Size: 256 << 20, Is64: true, Prefetchable: true},
		},
		PowerManagement: true,
		Express:         &pci.Express{LinkSpeed: 4, LinkWidth: 16, FunctionReset: true},
		MSI:             &pci.MSI{Vectors: 32, Masking: true},
	}
}

func mustNew(t testing.TB, f pci.Function) *pci.Space {
	t.Helper()
	s, err := pci.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func read32(t testing.TB, s *pci.Space, at uint64) uint32 {
	t.Helper()
	var b [4]byte
	if err := s.Read(at, b[:]); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint32(b[:])
}

func read16(t testing.TB, s *pci.Space, at uint64) uint16 { return uint16(read32(t, s, at)) }

func write32(t testing.TB, s *pci.Space, at uint64, v uint32) pci.Change {
	t.Helper()
	ch, err := s.Write(at, binary.LittleEndian.AppendUint32(nil, v))
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func write16(t testing.TB, s *pci.Space, at uint64, v uint16) pci.Change {
	t.Helper()
	ch, err := s.Write(at, binary.LittleEndian.AppendUint16(nil, v))
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// The header as lspci -x would show it, byte for byte.
func TestHeaderAfterPowerOn(t *testing.T) {
	s := mustNew(t, gpuLike())
	got := make([]byte, 0x40)
	if err := s.Read(0, got); err != nil {
		t.Fatal(err)
	}
	want := []byte{
		0x5a, 0x1f, 0x01, 0x00, 0x00, 0x00, 0x10, 0x00, 0x02, 0x00, 0x00, 0x12, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x5a, 0x1f, 0x00, 0x01,
		0x00, 0x00, 0x00, 0x00, 0x40, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("header (-want +got):\n%s", d)
	}
	if s.Len() != pci.ExtendedSpaceBytes {
		t.Errorf("extended space has %d bytes", s.Len())
	}
	if v := read32(t, s, 0x100); v != 0 {
		t.Errorf("extended capability list begins with %#x, want none", v)
	}
}

func TestCapabilitiesAfterPowerOn(t *testing.T) {
	f := gpuLike()
	f.MSIX = &pci.MSIX{Vectors: 64, TableBAR: 0, TableOffset: 0x8000, PBABAR: 0, PBAOffset: 0xc000}
	s := mustNew(t, f)
	for _, c := range []struct {
		name string
		id   byte
		want string // the capability's bytes in hex, without "next"
	}{
		{"PM", pci.CapPM, "0300 08000000"},
		{"Express", pci.CapExpress, "0200 21800010 1028 0000 04010000 0000 0401" +
			" 00000000 0000 0000 0000 0000 00000000 00000000 0000 0000 1e000000 0400 0000 00000000 0000 0000"},
		{"MSI", pci.CapMSI, "8a01 00000000 00000000 0000 0000 00000000 00000000"},
		{"MSI-X", pci.CapMSIX, "3f00 00800000 00c00000"},
	} {
		at := s.Capability(c.id)
		if at == 0 {
			t.Errorf("%s: not in the list", c.name)
			continue
		}
		want := unhex(t, c.want)
		got := make([]byte, len(want))
		if err := s.Read(uint64(at+2), got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	var b []byte
	s = strings.ReplaceAll(s, " ", "")
	for i := 0; i < len(s); i += 2 {
		b = append(b, byte(strings.IndexByte("0123456789abcdef", s[i])<<4|strings.IndexByte("0123456789abcdef", s[i+1])))
	}
	return b
}

func TestFunctionWithoutCapabilities(t *testing.T) {
	s := mustNew(t, pci.Function{VendorID: 1, DeviceID: 2})
	if s.Len() != pci.SpaceBytes || read32(t, s, pci.CapabilityList) != 0 || read16(t, s, pci.Status) != 0 {
		t.Errorf("%d bytes, list %#x, status %#x", s.Len(), read32(t, s, pci.CapabilityList), read16(t, s, pci.Status))
	}
	if s.Capability(pci.CapMSI) != 0 || s.MSI() != (pci.MSIState{}) || s.MSIX() != (pci.MSIXState{}) || s.PowerState() != 0 {
		t.Error("states of capabilities that there aren't")
	}
	s.SetMSIPending(1)
}

// TestBARSizing performs the sizing protocol of PCI 3.0 §6.2.5.1 as Linux does.
func TestBARSizing(t *testing.T) {
	s := mustNew(t, gpuLike())
	for _, c := range []struct {
		reg  uint64
		want uint32
	}{{0x10, 0xffff0000}, {0x14, 0}, {0x18, 0xf000000c}, {0x1c, 0xffffffff}, {0x20, 0}, {0x24, 0}, {0x30, 0}} {
		old := read32(t, s, c.reg)
		write32(t, s, c.reg, 0xffffffff)
		if got := read32(t, s, c.reg); got != c.want {
			t.Errorf("register %#x reads %#x after ones, want %#x", c.reg, got, c.want)
		}
		write32(t, s, c.reg, old)
		if got := read32(t, s, c.reg); got != old {
			t.Errorf("register %#x reads %#x when restored, want %#x", c.reg, got, old)
		}
	}
}

func TestBARAddress(t *testing.T) {
	s := mustNew(t, gpuLike())
	if ch := write32(t, s, 0x18, 0xe0000000); ch != pci.ChangeBARs {
		t.Errorf("change %b", ch)
	}
	write32(t, s, 0x1c, 0x3f)
	if addr, ok := s.BARAddress(2); addr != 0x3f_e000_0000 || ok {
		t.Errorf("BAR 2 at %#x, decoded %t; memory accesses are off", addr, ok)
	}
	if ch := write16(t, s, pci.Command, 0xffff); ch != pci.ChangeCommand {
		t.Errorf("change %b", ch)
	}
	if got := s.Command(); got != 0x0546 {
		t.Errorf("command %#x after ones", got)
	}
	if _, ok := s.BARAddress(2); !ok {
		t.Error("BAR 2 is not decoded")
	}
	for _, i := range []int{-1, 1, 3, 6} {
		if _, ok := s.BARAddress(i); ok {
			t.Errorf("BAR %d is decoded", i)
		}
	}
}

func TestStatusIsClearedByOnes(t *testing.T) {
	s := mustNew(t, gpuLike())
	s.RaiseStatus(0xffff)
	const all = pci.StatusCapList | pci.StatusParity | pci.StatusSigTargetAbort | pci.StatusRecTargetAbort |
		pci.StatusRecMasterAbort | pci.StatusSigSystemError | pci.StatusDetectedParity
	if got := read16(t, s, pci.Status); got != all {
		t.Fatalf("status %#x, want %#x", got, all)
	}
	write16(t, s, pci.Status, pci.StatusRecMasterAbort)
	if got := read16(t, s, pci.Status); got != all&^pci.StatusRecMasterAbort {
		t.Errorf("status %#x after one bit was cleared", got)
	}
	write16(t, s, pci.Status, 0)
	if got := read16(t, s, pci.Status); got != all&^pci.StatusRecMasterAbort {
		t.Errorf("status %#x: zeros clear nothing", got)
	}
	write32(t, s, pci.Command, 0xffff0000)
	if got := read16(t, s, pci.Status); got != pci.StatusCapList {
		t.Errorf("status %#x after all bits were cleared through a 32-bit write", got)
	}
}

func TestMSI(t *testing.T) {
	s := mustNew(t, gpuLike())
	at := uint64(s.Capability(pci.CapMSI))
	write32(t, s, at+4, 0xfee01003)
	write32(t, s, at+8, 0x12)
	write16(t, s, at+12, 0x4041)
	write32(t, s, at+16, 0x80000001)
	if ch := write16(t, s, at+2, 3<<4|1); ch != pci.ChangeMSI {
		t.Errorf("change %b", ch)
	}
	want := pci.MSIState{Enabled: true, Vectors: 8, Address: 0x12_fee0_1000, Data: 0x4041, Mask: 0x80000001}
	if got := s.MSI(); got != want {
		t.Errorf("state %+v, want %+v", got, want)
	}
	s.SetMSIPending(1 << 31)
	if got := read32(t, s, at+20); got != 1<<31 {
		t.Errorf("pending bits %#x", got)
	}
	if write32(t, s, at+20, 0); read32(t, s, at+20) != 1<<31 {
		t.Error("pending bits are read-only")
	}
	write16(t, s, at+2, 7<<4) // reserved: more than the function supports
	if got := s.MSI().Vectors; got != 32 {
		t.Errorf("%d vectors given, at most 32 there are", got)
	}
	s.Reset()
	if got := s.MSI(); got != (pci.MSIState{Vectors: 1}) {
		t.Errorf("state %+v after reset", got)
	}
}

func TestPowerStates(t *testing.T) {
	s := mustNew(t, gpuLike())
	at := uint64(s.Capability(pci.CapPM)) + 4
	for _, c := range []struct {
		write uint16
		want  uint8
		ch    pci.Change
	}{{3, 3, pci.ChangePower}, {1, 3, 0}, {2, 3, 0}, {0, 0, pci.ChangePower}, {2, 0, 0}, {0, 0, 0}} {
		ch := write16(t, s, at, c.write)
		if got := s.PowerState(); got != c.want || ch != c.ch {
			t.Errorf("wrote state %d: in state %d, change %b; want %d, %b", c.write, got, ch, c.want, c.ch)
		}
	}
}

func TestFunctionReset(t *testing.T) {
	s := mustNew(t, gpuLike())
	at := uint64(s.Capability(pci.CapExpress)) + 8
	ctl := read16(t, s, at)
	if ch := write16(t, s, at, ctl|1<<15); ch != pci.ChangeFunctionReset {
		t.Errorf("change %b", ch)
	}
	if got := read16(t, s, at); got != ctl {
		t.Errorf("device control reads %#x, want %#x", got, ctl)
	}
	f := gpuLike()
	f.Express.FunctionReset = false
	s = mustNew(t, f)
	if ch := write16(t, s, at, ctl|1<<15); ch != 0 {
		t.Errorf("change %b of a function that offers no reset", ch)
	}
}

func TestMSIX(t *testing.T) {
	f := gpuLike()
	f.MSIX = &pci.MSIX{Vectors: 2048, TableBAR: 2, PBABAR: 2, PBAOffset: 0x8000}
	s := mustNew(t, f)
	at := uint64(s.Capability(pci.CapMSIX))
	if ch := write16(t, s, at+2, 0xffff); ch != pci.ChangeMSIX {
		t.Errorf("change %b", ch)
	}
	if got := read16(t, s, at+2); got != 0xc7ff {
		t.Errorf("control %#x", got)
	}
	if got := s.MSIX(); got != (pci.MSIXState{Enabled: true, Masked: true}) {
		t.Errorf("state %+v", got)
	}
}

func TestOutOfRange(t *testing.T) {
	s := mustNew(t, gpuLike())
	before := make([]byte, s.Len())
	_ = s.Read(0, before)
	for _, c := range []struct {
		at uint64
		n  int
	}{{4096, 1}, {4093, 4}, {1 << 63, 4}, {^uint64(0), 1}, {0, 4097}} {
		if err := s.Read(c.at, make([]byte, c.n)); err == nil {
			t.Errorf("read of %d at %#x", c.n, c.at)
		}
		if _, err := s.Write(c.at, bytes.Repeat([]byte{0xff}, c.n)); err == nil {
			t.Errorf("write of %d at %#x", c.n, c.at)
		}
	}
	after := make([]byte, s.Len())
	_ = s.Read(0, after)
	if !bytes.Equal(before, after) {
		t.Error("a refused write changed something")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*pci.Function)
		want   string
	}{
		{"class", func(f *pci.Function) { f.Class = 1 << 24 }, "24 bits"},
		{"pin", func(f *pci.Function) { f.InterruptPin = 5 }, "pin 5"},
		{"odd BAR", func(f *pci.Function) { f.BARs[0].Size = 3 << 12 }, "power of two"},
		{"tiny BAR", func(f *pci.Function) { f.BARs[0].Size = 8 }, "power of two"},
		{"large 32-bit BAR", func(f *pci.Function) { f.BARs[0].Size = 4 << 30 }, "64-bit"},
		{"64-bit BAR in 5", func(f *pci.Function) { f.BARs[5] = pci.BAR{Size: 4096, Is64: true} }, "next number empty"},
		{"overlap", func(f *pci.Function) { f.BARs[3] = pci.BAR{Size: 4096} }, "next number empty"},
		{"MSI count", func(f *pci.Function) { f.MSI.Vectors = 3 }, "MSI with 3"},
		{"many MSI", func(f *pci.Function) { f.MSI.Vectors = 64 }, "MSI with 64"},
		{"link", func(f *pci.Function) { f.Express.LinkWidth = 3 }, "3 lanes"},
		{"generation", func(f *pci.Function) { f.Express.LinkSpeed = 7 }, "generation 7"},
		{"no MSI-X", func(f *pci.Function) { f.MSIX = &pci.MSIX{} }, "MSI-X with 0"},
		{"table outside", func(f *pci.Function) { f.MSIX = &pci.MSIX{Vectors: 2048, TableOffset: 0x8008} }, "table"},
		{"no such BAR", func(f *pci.Function) { f.MSIX = &pci.MSIX{Vectors: 1, TableBAR: 6} }, "BAR 6"},
		{"pending outside", func(f *pci.Function) { f.MSIX = &pci.MSIX{Vectors: 1, PBABAR: 1} }, "BAR 1"},
		{"unaligned", func(f *pci.Function) { f.MSIX = &pci.MSIX{Vectors: 1, PBAOffset: 4} }, "pending bits"},
		{"overlapping table", func(f *pci.Function) { f.MSIX = &pci.MSIX{Vectors: 2, PBAOffset: 16} }, "overlap"},
	} {
		f := gpuLike()
		c.change(&f)
		if _, err := pci.New(f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one about %q", c.name, err, c.want)
		}
	}
}
