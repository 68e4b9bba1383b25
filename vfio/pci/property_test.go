package pci_test

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"vgpud/vfio/pci"
)

// anyFunction draws a function that New accepts.
func anyFunction(t *rapid.T) pci.Function {
	f := pci.Function{
		VendorID:        rapid.Uint16().Draw(t, "vendor"),
		DeviceID:        rapid.Uint16().Draw(t, "device"),
		Revision:        rapid.Uint8().Draw(t, "revision"),
		Class:           rapid.Uint32Range(0, 1<<24-1).Draw(t, "class"),
		InterruptPin:    rapid.Uint8Range(0, 4).Draw(t, "pin"),
		Extended:        rapid.Bool().Draw(t, "extended"),
		PowerManagement: rapid.Bool().Draw(t, "pm"),
	}
	for i := 0; i < pci.NumBARs; i++ {
		if !rapid.Bool().Draw(t, "bar") {
			continue
		}
		b := &f.BARs[i]
		b.Prefetchable = rapid.Bool().Draw(t, "prefetchable")
		if b.Is64 = i < pci.NumBARs-1 && rapid.Bool().Draw(t, "64"); b.Is64 {
			b.Size = 1 << rapid.IntRange(4, 50).Draw(t, "log2 size")
			i++
		} else {
			b.Size = 1 << rapid.IntRange(4, 31).Draw(t, "log2 size")
		}
	}
	if rapid.Bool().Draw(t, "express") {
		f.Express = &pci.Express{
			LinkSpeed:     rapid.Uint8Range(0, 6).Draw(t, "speed"),
			LinkWidth:     1 << rapid.IntRange(0, 5).Draw(t, "log2 width"),
			FunctionReset: rapid.Bool().Draw(t, "flr"),
		}
	}
	if rapid.Bool().Draw(t, "msi") {
		f.MSI = &pci.MSI{Vectors: 1 << rapid.IntRange(0, 5).Draw(t, "log2 vectors"), Masking: rapid.Bool().Draw(t, "masking")}
	}
	return f
}

func anySpace(t *rapid.T) (*pci.Space, pci.Function) {
	f := anyFunction(t)
	s, err := pci.New(f)
	if err != nil {
		t.Fatalf("%+v: %v", f, err)
	}
	return s, f
}

func snapshot(s *pci.Space) []byte {
	b := make([]byte, s.Len())
	if err := s.Read(0, b); err != nil {
		panic(err)
	}
	return b
}

// fixedBits returns the bits of each byte that neither zeros nor ones change, found through Read
// and Write.
func fixedBits(s *pci.Space) []byte {
	first := snapshot(s)
	fixed := bytes.Repeat([]byte{0xff}, s.Len())
	for i := range first {
		for _, v := range []byte{0x00, 0xff} {
			s.Write(uint64(i), []byte{v})
			var b [1]byte
			s.Read(uint64(i), b[:])
			fixed[i] &^= b[0] ^ first[i]
		}
	}
	s.Reset()
	return fixed
}

func anyWrite(t *rapid.T, s *pci.Space) (uint64, []byte) {
	n := rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "width")
	at := rapid.IntRange(0, s.Len()-n).Draw(t, "offset")
	if rapid.Bool().Draw(t, "low") {
		at %= 0xc0
	}
	return uint64(at), rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "data")
}

func TestReadOnlyBitsNeverChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _ := anySpace(t)
		first, fixed := snapshot(s), fixedBits(s)
		if !bytes.Equal(snapshot(s), first) {
			t.Fatal("reset does not restore the first state")
		}
		// These must be fixed, whatever probing finds: identity, class, list of capabilities.
		for _, r := range [][2]int{{0x00, 4}, {0x08, 4}, {0x0d, 3}, {0x28, 13}, {0x3d, 3}} {
			for i := r[0]; i < r[0]+r[1]; i++ {
				if fixed[i] != 0xff {
					t.Fatalf("byte %#x can be written", i)
				}
			}
		}
		for range rapid.IntRange(1, 100).Draw(t, "writes") {
			at, data := anyWrite(t, s)
			if _, err := s.Write(at, data); err != nil {
				t.Fatal(err)
			}
			for i, b := range snapshot(s) {
				if (b^first[i])&fixed[i] != 0 {
					t.Fatalf("write of %x at %#x: read-only bits of byte %#x went from %#x to %#x", data, at, i, first[i], b)
				}
			}
		}
	})
}

func TestWidthsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, f := anySpace(t)
		b, _ := pci.New(f)
		for range rapid.IntRange(1, 50).Draw(t, "writes") {
			at, data := anyWrite(t, a)
			whole, _ := a.Write(at, data)
			var parts pci.Change
			for i := range data {
				ch, _ := b.Write(at+uint64(i), data[i:i+1])
				parts |= ch
			}
			if whole != parts || !bytes.Equal(snapshot(a), snapshot(b)) {
				t.Fatalf("write of %x at %#x: changes %b at once, %b by bytes", data, at, whole, parts)
			}
		}
	})
}

func TestUnchangedMeansUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _ := anySpace(t)
		for range rapid.IntRange(1, 50).Draw(t, "writes") {
			cmd, msi, power := s.Command(), s.MSI(), s.PowerState()
			at, data := anyWrite(t, s)
			ch, _ := s.Write(at, data)
			if got := ch&pci.ChangeCommand != 0; got != (cmd != s.Command()) {
				t.Fatalf("command change reported: %t", got)
			}
			if ch&pci.ChangeMSI == 0 && msi != s.MSI() {
				t.Fatal("MSI changed, not reported")
			}
			if ch&pci.ChangePower == 0 && power != s.PowerState() {
				t.Fatal("power state changed, not reported")
			}
		}
	})
}

func TestSizingOfAnyBAR(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, f := anySpace(t)
		for i, b := range f.BARs {
			if b.Size == 0 {
				continue
			}
			reg := uint64(0x10 + 4*i)
			ones, n := []byte{0xff, 0xff, 0xff, 0xff}, 1
			if b.Is64 {
				n = 2
			}
			var got [2]uint32
			for k := 0; k < n; k++ {
				s.Write(reg+uint64(4*k), ones)
				var p [4]byte
				s.Read(reg+uint64(4*k), p[:])
				got[k] = binary.LittleEndian.Uint32(p[:])
			}
			mask := uint64(got[0]&^0xf) | uint64(got[1])<<32
			if !b.Is64 {
				mask |= 0xffffffff << 32
			}
			if size := ^mask + 1; size != b.Size {
				t.Fatalf("BAR %d sizes to %#x, is %#x", i, size, b.Size)
			}
			if got[0]&1 != 0 || got[0]&4 != 0 != b.Is64 || got[0]&8 != 0 != b.Prefetchable {
				t.Fatalf("BAR %d has type bits %#x", i, got[0]&0xf)
			}
			addr := rapid.Uint64().Draw(t, "address") &^ (b.Size - 1)
			if !b.Is64 {
				addr &= 0xffffffff
			}
			s.Write(reg, binary.LittleEndian.AppendUint32(nil, uint32(addr)))
			if b.Is64 {
				s.Write(reg+4, binary.LittleEndian.AppendUint32(nil, uint32(addr>>32)))
			}
			if at, _ := s.BARAddress(i); at != addr {
				t.Fatalf("BAR %d of %#x bytes placed at %#x is at %#x", i, b.Size, addr, at)
			}
		}
	})
}

func TestCapabilityListIsWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, f := anySpace(t)
		checkCapabilities(t, s, f)
	})
}

// checkCapabilities walks the list like an operating system.
func checkCapabilities(t interface{ Fatalf(string, ...any) }, s *pci.Space, f pci.Function) {
	var want []byte
	size := map[byte]int{pci.CapPM: 8, pci.CapExpress: 0x3c, pci.CapMSIX: 12, pci.CapMSI: 14}
	if f.PowerManagement {
		want = append(want, pci.CapPM)
	}
	if f.Express != nil {
		want = append(want, pci.CapExpress)
	}
	if f.MSI != nil {
		want = append(want, pci.CapMSI)
		if f.MSI.Masking {
			size[pci.CapMSI] = 24
		}
	}
	if f.MSIX != nil {
		want = append(want, pci.CapMSIX)
	}
	b := snapshot(s)
	var got []byte
	var used [256 / 8]byte
	for at := int(b[0x34]); at != 0; at = int(b[at+1]) {
		if at < 0x40 || at%4 != 0 || at+size[b[at]] > 256 || size[b[at]] == 0 || len(got) > 4 {
			t.Fatalf("capability %#x at %#x, after % x", b[at], at, got)
		}
		for i := at; i < at+size[b[at]]; i++ {
			if used[i/8]&(1<<(i%8)) != 0 {
				t.Fatalf("capability %#x at %#x overlaps another", b[at], at)
			}
			used[i/8] |= 1 << (i % 8)
		}
		got = append(got, b[at])
	}
	if !bytes.Equal(got, want) || (b[6]&0x10 != 0) != (len(want) > 0) {
		t.Fatalf("list % x, want % x; status %#x", got, want, b[6])
	}
}

// FuzzConfigSpace writes anything anywhere: five bytes an access, for offset, width and data.
func FuzzConfigSpace(f *testing.F) {
	f.Add([]byte{0x10, 0, 2, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x04, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x44, 0, 0, 3, 0, 0, 0})
	f.Add([]byte{0x00, 0x10, 2, 1, 2, 3, 4, 0xfd, 0x0f, 2, 1, 2, 3, 4})
	fn := gpuLike()
	fn.MSIX = &pci.MSIX{Vectors: 33, TableBAR: 0, PBABAR: 0, PBAOffset: 0x1000}
	probe, err := pci.New(fn)
	if err != nil {
		f.Fatal(err)
	}
	first, fixed := snapshot(probe), fixedBits(probe)
	f.Fuzz(func(t *testing.T, in []byte) {
		s := mustNew(t, fn)
		for ; len(in) >= 7; in = in[7:] {
			at := uint64(binary.LittleEndian.Uint16(in))
			n := 1 << (in[2] % 3)
			_, err := s.Write(at, in[3:3+n])
			if (err != nil) != (at+uint64(n) > uint64(s.Len())) {
				t.Fatalf("write of %d at %#x: %v", n, at, err)
			}
			if v := s.MSI().Vectors; v < 1 || v > 32 || bits.OnesCount(uint(v)) != 1 {
				t.Fatalf("%d vectors", v)
			}
			if p := s.PowerState(); p != 0 && p != 3 {
				t.Fatalf("power state %d", p)
			}
		}
		for i, b := range snapshot(s) {
			if (b^first[i])&fixed[i] != 0 {
				t.Fatalf("read-only bits of byte %#x went from %#x to %#x", i, first[i], b)
			}
		}
		checkCapabilities(t, s, fn)
		s.Reset()
		if !bytes.Equal(snapshot(s), first) {
			t.Fatal("reset does not restore the first state")
		}
	})
}

func BenchmarkWrite4(b *testing.B) {
	s := mustNew(b, gpuLike())
	p := []byte{6, 0, 0, 0}
	b.ReportAllocs()
	for b.Loop() {
		p[0] ^= 2
		if _, err := s.Write(pci.Command, p); err != nil {
			b.Fatal(err)
		}
	}
}
