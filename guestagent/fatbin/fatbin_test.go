package fatbin_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"vgpud/guestagent/fatbin"
)

// text returns PTX for a target, long enough to be worth compressing.
func text(target string) []byte {
	return []byte("// a comment with .target sm_1\n.version 7.0\n.target\t" + target + ", debug\n.address_size 64\n" +
		strings.Repeat(".global .b32 x;\n", 40))
}

// code returns the header of an ELF file of a type, and some bytes behind it.
func code(elfType byte) []byte {
	b := make([]byte, 96)
	copy(b, "\x7fELF\x02\x01\x01")
	b[16] = elfType
	return b
}

func container(t testing.TB, images ...fatbin.Image) []byte {
	t.Helper()
	b, err := fatbin.Append(nil, images...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestWriterAndReaderAgree writes random containers and reads them back.
func TestWriterAndReaderAgree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var images []fatbin.Image
		for range rapid.IntRange(0, 5).Draw(rt, "images") {
			data := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "data")
			data = bytes.TrimRight(bytes.Repeat(data, rapid.IntRange(1, 20).Draw(rt, "times")), "\x00")
			images = append(images, fatbin.Image{
				Kind:        rapid.SampledFrom([]fatbin.Kind{fatbin.PTX, fatbin.ELF, 64}).Draw(rt, "kind"),
				Major:       rapid.IntRange(0, 65535).Draw(rt, "major"),
				Minor:       rapid.IntRange(0, 65535).Draw(rt, "minor"),
				SM:          rapid.IntRange(0, 1000).Draw(rt, "sm"),
				Name:        rapid.StringMatching(`[a-z./]{0,20}`).Draw(rt, "name"),
				Data:        data,
				Compression: rapid.SampledFrom([]fatbin.Compression{fatbin.Stored, fatbin.LZ4, fatbin.Zstd}).Draw(rt, "compression"),
			})
		}
		b := container(t, images...)
		if n, err := fatbin.Size(b[:fatbin.ContainerHead]); err != nil || n != int64(len(b)) {
			rt.Fatalf("Size: %d, %v, want %d", n, err, len(b))
		}
		c, err := fatbin.Parse(append(b, 1, 2, 3))
		if err != nil {
			rt.Fatal(err)
		}
		var got []fatbin.Image
		for _, e := range c.Entries {
			data, err := e.Data()
			if err != nil {
				rt.Fatal(err)
			}
			if e.Kind != fatbin.PTX {
				data = data[:min(len(data), len(images[len(got)].Data))] // the rest is padding, checked below
			}
			got = append(got, fatbin.Image{Kind: e.Kind, Major: e.Major, Minor: e.Minor, SM: e.SM, Name: e.Name, Data: data})
		}
		if d := cmp.Diff(images, got, cmpopts.IgnoreFields(fatbin.Image{}, "Compression"), cmpopts.EquateEmpty()); d != "" {
			rt.Fatalf("-written +read:\n%s", d)
		}
		if again := container(t, images...); !bytes.Equal(again, b) {
			rt.Fatal("equal images gave other bytes")
		}
	})
}

func TestSectionOfSeveralContainers(t *testing.T) {
	a := container(t, fatbin.Image{Kind: fatbin.PTX, SM: 50, Data: text("sm_50")})
	b := container(t, fatbin.Image{Kind: fatbin.PTX, SM: 80, Data: text("sm_80"), Compression: fatbin.LZ4})
	all, err := fatbin.ParseAll(bytes.Join([][]byte{a, b, nil}, make([]byte, 24)))
	if err != nil || len(all) != 2 || all[0].Entries[0].SM != 50 || all[1].Entries[0].SM != 80 {
		t.Fatalf("%v, %v", all, err)
	}
	if _, err := (fatbin.Options{MaxEntries: 1}).ParseAll(append(a, b...)); err == nil {
		t.Error("more entries than allowed were accepted")
	}
}

func TestChoose(t *testing.T) {
	ptx := func(target string, sm int) fatbin.Image {
		return fatbin.Image{Kind: fatbin.PTX, SM: sm, Data: text(target), Compression: fatbin.LZ4}
	}
	elf := func(sm int) fatbin.Image { return fatbin.Image{Kind: fatbin.ELF, SM: sm, Data: code(2)} }
	for _, c := range []struct {
		name   string
		images []fatbin.Image
		gpu    fatbin.Capability
		code   bool
		want   string // kind, SM and target
	}{
		{"newest PTX that fits", []fatbin.Image{ptx("sm_50", 50), ptx("sm_80", 80), ptx("sm_100", 100)}, fatbin.Capability{Major: 9}, false, "1 80 sm_80"},
		{"equal capability", []fatbin.Image{ptx("sm_52", 52), ptx("sm_90", 90)}, fatbin.Capability{Major: 9}, false, "1 90 sm_90"},
		{"architecture's own", []fatbin.Image{ptx("sm_90", 90), ptx("sm_90a", 90)}, fatbin.Capability{Major: 9}, false, "1 90 sm_90a"},
		{"another architecture's own", []fatbin.Image{ptx("sm_80", 80), ptx("sm_90a", 90)}, fatbin.Capability{Major: 10}, false, "1 80 sm_80"},
		{"family", []fatbin.Image{ptx("sm_100f", 100), ptx("sm_90", 90)}, fatbin.Capability{Major: 10, Minor: 3}, false, "1 100 sm_100f"},
		{"another family", []fatbin.Image{ptx("sm_100f", 100), ptx("sm_90", 90)}, fatbin.Capability{Major: 12}, false, "1 90 sm_90"},
		{"no code without hardware", []fatbin.Image{elf(90), ptx("sm_50", 50)}, fatbin.Capability{Major: 9}, false, "1 50 sm_50"},
		{"code before PTX", []fatbin.Image{ptx("sm_90", 90), elf(90)}, fatbin.Capability{Major: 9}, true, "2 90 "},
		{"code of a lower minor", []fatbin.Image{elf(80), elf(86), elf(89)}, fatbin.Capability{Major: 8, Minor: 7}, true, "2 86 "},
		{"code of another major", []fatbin.Image{elf(80), ptx("sm_70", 70)}, fatbin.Capability{Major: 9}, true, "1 70 sm_70"},
		{"other kinds", []fatbin.Image{{Kind: 64, SM: 90}, ptx("sm_70", 70)}, fatbin.Capability{Major: 9}, true, "1 70 sm_70"},
		{"only newer", []fatbin.Image{ptx("sm_100", 100)}, fatbin.Capability{Major: 9}, true, "209"},
		{"empty", nil, fatbin.Capability{Major: 9}, true, "209"},
		{"relocatable", []fatbin.Image{{Kind: fatbin.ELF, SM: 90, Data: code(1)}, ptx("sm_70", 70)}, fatbin.Capability{Major: 9}, true, "200"},
		{"PTX that is none", []fatbin.Image{{Kind: fatbin.PTX, SM: 90}}, fatbin.Capability{Major: 9}, false, "200"},
		{"code that is none", []fatbin.Image{{Kind: fatbin.ELF, SM: 90, Data: text("sm_90")}}, fatbin.Capability{Major: 9}, true, "200"},
	} {
		parsed, err := fatbin.Parse(container(t, c.images...))
		if err != nil {
			t.Fatal(err)
		}
		e, b, err := parsed.Choose(c.gpu, c.code)
		got := ""
		if err != nil {
			got = fmt.Sprint(int(codeOf(t, err)))
		} else {
			got = fmt.Sprintf("%d %d ", e.Kind, e.SM)
			if _, rest, ok := bytes.Cut(b, []byte("\n.target\t")); ok {
				target, _, _ := bytes.Cut(rest, []byte(","))
				got += string(target)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s (%v)", c.name, got, c.want, err)
		}
	}
}

// codeOf returns the code of an error, which must be an *Error.
func codeOf(t *testing.T, err error) fatbin.Code {
	t.Helper()
	var e *fatbin.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no *Error", err)
	}
	return e.Code
}

// TestBrokenContainers changes one field of a good container at a time.
func TestBrokenContainers(t *testing.T) {
	le := binary.LittleEndian
	good := container(t, fatbin.Image{Kind: fatbin.PTX, SM: 80, Data: text("sm_80"), Compression: fatbin.LZ4})
	const entry = fatbin.ContainerHead
	for _, c := range []struct {
		name  string
		spoil func(b []byte) []byte
	}{
		{"empty", func(b []byte) []byte { return nil }},
		{"cut header", func(b []byte) []byte { return b[:15] }},
		{"magic", func(b []byte) []byte { b[0]++; return b }},
		{"version", func(b []byte) []byte { b[4]++; return b }},
		{"short container header", func(b []byte) []byte { b[6] = 8; return b }},
		{"cut", func(b []byte) []byte { return b[:len(b)-1] }},
		{"huge container", func(b []byte) []byte { le.PutUint64(b[8:], 1<<63); return b }},
		{"cut entry", func(b []byte) []byte { le.PutUint64(b[8:], 63); return b }},
		{"short entry header", func(b []byte) []byte { le.PutUint32(b[entry+4:], 56); return b }},
		{"long entry header", func(b []byte) []byte { le.PutUint32(b[entry+4:], 1<<31); return b }},
		{"huge payload", func(b []byte) []byte { le.PutUint64(b[entry+8:], ^uint64(0)); return b }},
		{"more compressed than there is", func(b []byte) []byte { le.PutUint32(b[entry+16:], 1<<20); return b }},
		{"huge image", func(b []byte) []byte { le.PutUint64(b[entry+56:], ^uint64(0)); return b }},
		{"image over the limit", func(b []byte) []byte { le.PutUint64(b[entry+56:], 1<<40); return b }},
		{"more than LZ4 can give", func(b []byte) []byte { le.PutUint64(b[entry+56:], 200<<20); return b }},
		{"image longer than said", func(b []byte) []byte { le.PutUint64(b[entry+56:], 10); return b }},
		{"image shorter than said", func(b []byte) []byte { b[entry+56]++; return b }},
		{"garbage", func(b []byte) []byte { copy(b[entry+64:], "\xff\xff\xff\xff\xff\xff\xff\xff"); return b }},
		{"not zstd", func(b []byte) []byte { le.PutUint64(b[entry+40:], fatbin.FlagZstd); return b }},
	} {
		parsed, err := fatbin.Parse(c.spoil(bytes.Clone(good)))
		if err == nil {
			_, _, err = parsed.Choose(fatbin.Capability{Major: 9}, true)
		}
		if err == nil {
			t.Errorf("%s: accepted", c.name)
		} else if got := codeOf(t, err); got != fatbin.InvalidImage {
			t.Errorf("%s: %d: %v", c.name, got, err)
		}
	}
}

// TestBombsStaySmall checks that an image that decompresses to more than its entry says, or than is
// allowed, is refused.
func TestBombsStaySmall(t *testing.T) {
	for _, how := range []fatbin.Compression{fatbin.LZ4, fatbin.Zstd} {
		b := container(t, fatbin.Image{Kind: fatbin.PTX, SM: 80, Data: bytes.Repeat([]byte{'x'}, 8<<20), Compression: how})
		if len(b) > 64<<10 {
			t.Fatalf("compressed to %d bytes", len(b))
		}
		for _, limit := range []int64{1 << 20, 8<<20 + 1} { // and the zero at the end
			c, err := fatbin.Options{MaxData: limit}.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Entries[0].Data(); (err != nil) != (limit == 1<<20) {
				t.Errorf("compression %d, limit %d: %v", how, limit, err)
			}
		}
		binary.LittleEndian.PutUint64(b[fatbin.ContainerHead+56:], 4096)
		c, err := fatbin.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(1, func() { _, err = c.Entries[0].Data() }); err == nil || n > 1000 {
			t.Errorf("compression %d: an image longer than said gave %v", how, err)
		}
	}
}

func TestDetect(t *testing.T) {
	le := binary.LittleEndian
	wrapper := le.AppendUint32(nil, 0x466243b1)
	wrapper = le.AppendUint32(wrapper, 2)
	wrapper = le.AppendUint64(wrapper, 0x1000)
	wrapper = le.AppendUint64(wrapper, 0x2000)
	for _, c := range []struct {
		head []byte
		want fatbin.Format
	}{
		{nil, fatbin.FormatUnknown},
		{[]byte{0}, fatbin.FormatUnknown},
		{[]byte("hello"), fatbin.FormatUnknown},
		{[]byte("//\n"), fatbin.FormatPTX},
		{[]byte(".version"), fatbin.FormatPTX},
		{code(2), fatbin.FormatELF},
		{container(t), fatbin.FormatContainer},
		{wrapper, fatbin.FormatWrapper},
	} {
		if got := fatbin.Detect(c.head); got != c.want {
			t.Errorf("%q is %d, want %d", c.head, got, c.want)
		}
	}
	w, err := fatbin.ParseWrapper(wrapper)
	if want := (fatbin.Wrapper{Version: 2, Data: 0x1000, List: 0x2000}); err != nil || w != want {
		t.Errorf("wrapper %+v, %v, want %+v", w, err, want)
	}
	for _, spoil := range []func(b []byte) []byte{
		func(b []byte) []byte { return b[:23] },
		func(b []byte) []byte { b[4] = 3; return b },
		func(b []byte) []byte { clear(b[8:16]); return b },
	} {
		if w, err := fatbin.ParseWrapper(spoil(bytes.Clone(wrapper))); err == nil {
			t.Errorf("a broken wrapper was read as %+v", w)
		}
	}
}

func TestSizeOfMachineCode(t *testing.T) {
	b := code(2)
	le := binary.LittleEndian
	le.PutUint64(b[40:], 1000) // section headers: 64 bytes, 3 of them
	b[58], b[60] = 64, 3
	if n, err := fatbin.Size(b[:fatbin.ELFHead]); err != nil || n != 1000+3*64 {
		t.Errorf("%d, %v", n, err)
	}
	le.PutUint64(b[40:], ^uint64(0))
	if n, err := fatbin.Size(b); err == nil {
		t.Errorf("headers at the end of the address space: %d", n)
	}
	if n, err := fatbin.Size(text("sm_80")); err == nil {
		t.Errorf("text has size %d", n)
	}
}

// FuzzParse reads anything: no panic, no more memory than allowed, typed errors.
func FuzzParse(f *testing.F) {
	for _, how := range []fatbin.Compression{fatbin.Stored, fatbin.LZ4, fatbin.Zstd} {
		f.Add(container(f, fatbin.Image{Kind: fatbin.PTX, SM: 80, Data: text("sm_80"), Compression: how, Name: "a.cu"},
			fatbin.Image{Kind: fatbin.ELF, SM: 90, Data: code(1), Compression: how}))
	}
	noise := make([]byte, 200)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	f.Add(container(f, fatbin.Image{Kind: 7, SM: 1, Data: noise}))
	const limit = 1 << 16
	f.Fuzz(func(t *testing.T, b []byte) {
		fatbin.Detect(b)
		fatbin.Size(b)
		fatbin.ParseWrapper(b)
		check := func(err error) {
			if e := (*fatbin.Error)(nil); err != nil && (!errors.As(err, &e) || len(e.Error()) > 1000) {
				t.Fatalf("%T: %v", err, err)
			}
		}
		all, err := fatbin.Options{MaxEntries: 16, MaxData: limit}.ParseAll(b)
		check(err)
		for _, c := range all {
			for _, e := range c.Entries {
				data, err := e.Data()
				check(err)
				if len(data) > max(limit, len(b)) {
					t.Fatalf("%d bytes of data", len(data))
				}
			}
			_, _, err = c.Choose(fatbin.Capability{Major: 9}, true)
			check(err)
		}
	})
}
