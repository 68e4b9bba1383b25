package domain

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/mediator/api"
)

// scribe writes random domains, in all the styles that XML allows.
type scribe struct{ *rapid.T }

func (s scribe) one(label string, of ...string) string { return rapid.SampledFrom(of).Draw(s.T, label) }

// gap is what may be between elements.
func (s scribe) gap() string {
	return s.one("gap", "", "", "\n", "\n  ", "\r\n\t", " ", "\n\n    ", "<!-- <metadata> ' \" & -->", "\n  <!-- a --> ", "<?pi <x/>?>", "\n  <?pi?>\n")
}

// attr is an attribute in either kind of quotes.
func (s scribe) attr(name, value string) string {
	q := s.one("quote", `'`, `"`)
	value = strings.NewReplacer("&", "&amp;", "<", "&#60;", q, "&#x27;").Replace(value)
	return s.one("before attribute", " ", "\n\t", "  ") + name + s.one("equals", "=", " = ", "=\n") + q + value + q
}

// element is one with some of its content.
func (s scribe) element(name, attrs string, content ...string) string {
	space := s.one("before the tag's end", "", "", " ", "\n")
	if len(content) == 0 && rapid.Bool().Draw(s.T, "closes itself") {
		return "<" + name + attrs + space + "/>"
	}
	var b strings.Builder
	b.WriteString("<" + name + attrs + space + ">")
	for _, c := range content {
		b.WriteString(s.gap() + c)
	}
	b.WriteString(s.gap() + "</" + name + s.one("in the closing tag", "", " ", "\n") + ">")
	return b.String()
}

// leaf is an element with text.
func (s scribe) leaf(name, text string) string {
	switch s.one("text as", "plain", "section", "references") {
	case "section":
		text = "<![CDATA[" + text + "]]>"
	case "references":
		text = "&#" + fmt.Sprint(text[0]) + ";" + text[1:]
	}
	space := s.one("space in it", "", "\n   ")
	return "<" + name + ">" + space + text + space + "</" + name + ">"
}

// domain is one that Define can give virtual GPUs.
func (s scribe) domain() string {
	attrs := []string{s.attr("type", s.one("type", "kvm", "qemu"))}
	qemu, prefix := "", ""
	switch s.one("QEMU's namespace", "none", "usual", "other prefix", "prefix for another") {
	case "usual":
		prefix = "qemu"
	case "other prefix":
		prefix = "q"
	case "prefix for another":
		attrs = append(attrs, s.attr("xmlns:qemu", "urn:qemu"))
	}
	if prefix != "" {
		attrs = append(attrs, s.attr("xmlns:"+prefix, qemuNamespace))
		qemu = prefix + ":"
	}
	children := []string{s.leaf("name", "web"), s.leaf("uuid", testUUID)}
	maybe := func(what string, make func() string) {
		if rapid.Bool().Draw(s.T, what) {
			children = append(children, make())
		}
	}
	maybe("metadata", func() string {
		var foreign []string
		if rapid.Bool().Draw(s.T, "others' metadata") {
			foreign = append(foreign, s.element("app:x", s.attr("xmlns:app", "urn:app"), "text"))
		}
		return s.element("metadata", "", foreign...)
	})
	maybe("memory", func() string { return s.leaf("memory", "1048576") })
	maybe("memoryBacking", s.memoryBacking)
	children = append(children, s.element("os", "", s.element("type", s.attr("machine", "pc-q35-9.2"), "hvm")))
	maybe("devices", s.devices)
	maybe("commandline", func() string {
		attrs, q := "", qemu
		if prefix == "" {
			attrs, q = s.attr("xmlns", qemuNamespace), ""
		}
		var args []string
		for range rapid.IntRange(0, 3).Draw(s.T, "arguments") {
			args = append(args, s.element(q+"arg", s.attr("value", s.one("argument", "-device", "edu,bus=pcie.0,addr=0x11", "-foo", `{"driver":"edu","addr":"0x12"}`, "it's"))))
		}
		return s.element(q+"commandline", attrs, args...)
	})
	// libvirt does not mind their order.
	children = rapid.Permutation(children).Draw(s.T, "order")
	attrs = rapid.Permutation(attrs).Draw(s.T, "attributes")
	head := s.one("head", "", "<?xml version='1.0'?>\n", "\n<!-- head -->\n")
	return head + s.element("domain", strings.Join(attrs, ""), children...) + s.one("tail", "", "\n", "<!-- tail -->")
}

func (s scribe) memoryBacking() string {
	var in []string
	add := func(what string) {
		if rapid.Bool().Draw(s.T, what) {
			in = append(in, s.element(what, ""))
		}
	}
	add("hugepages")
	add("locked")
	if rapid.Bool().Draw(s.T, "source") {
		in = append(in, s.element("source", s.attr("type", s.one("source's type", "memfd", "file"))))
	}
	if rapid.Bool().Draw(s.T, "access") {
		in = append(in, s.element("access", s.attr("mode", "shared")))
	}
	return s.element("memoryBacking", "", in...)
}

func (s scribe) devices() string {
	var in []string
	for range rapid.IntRange(0, 4).Draw(s.T, "devices") {
		slot := rapid.IntRange(0x0f, 0x1f).Draw(s.T, "slot")
		in = append(in, s.element("interface", "", s.element("address", s.attr("type", "pci")+s.attr("slot", slotText(slot)))))
	}
	return s.element("devices", "", in...)
}

// gpus are random virtual GPUs.
func gpus(t *rapid.T) Devices {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) GPU {
		part := rapid.IntRange(0, 100).Draw(t, "cap")
		return GPU{
			Weight:          rapid.SampledFrom([]float64{0, 0.001, 0.1 + 0.2, 2, 1e6}).Draw(t, "weight"),
			Cap:             float64(part) / 100,
			Guarantee:       float64(rapid.IntRange(0, part).Draw(t, "guarantee")) / 100,
			PriorityCeiling: rapid.IntRange(0, 15).Draw(t, "priority"),
			Latency:         rapid.SampledFrom([]time.Duration{0, api.MinLatency, 12_345, 100 * time.Microsecond, api.MaxLatency}).Draw(t, "latency"),
			Memory:          uint64(rapid.IntRange(0, 1<<30).Draw(t, "KiB")) << 10,
			GPU:             rapid.SampledFrom([]string{"", "any", "gpu0"}).Draw(t, "gpu"),
			KernelTimeLimit: time.Duration(rapid.Int64Range(-1, 1<<40).Draw(t, "limit")),
			BAR2:            rapid.SampledFrom([]uint64{0, 4 << 20, 1 << 36}).Draw(t, "bar2"),
		}
	}), 1, 5).Draw(t, "gpus")
}

// TestDefineProperties checks the promises of Define and Undefine about each other.
func TestDefineProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := []byte(scribe{t}.domain())
		a, b := gpus(t), gpus(t)
		must := func(y []byte, err error) []byte {
			t.Helper()
			if err != nil {
				t.Fatalf("%v, of\n%s", err, x)
			}
			return y
		}
		same := func(what string, want, got []byte) {
			t.Helper()
			if !bytes.Equal(want, got) {
				t.Fatalf("%s (-want +got):\n%s", what, Diff("domain.xml", want, got))
			}
		}
		same("Undefine(x)", x, must(Undefine(x)))
		defined := must(Define(x, a, runDir))
		same("Undefine(Define(x))", x, must(Undefine(defined)))
		same("Define(Define(x, a), b)", must(Define(x, b, runDir)), must(Define(defined, b, runDir)))

		v, err := Parse(defined)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, v.GPUs); diff != "" {
			t.Fatalf("Parse(Define(x)) (-want +got):\n%s", diff)
		}
		if err := v.Check(); err != nil || !v.Spare || !Concerns(defined) {
			t.Fatalf("Check: %v, of\n%s", err, defined)
		}
		if got, want := foreign(t, defined), foreign(t, x); !cmp.Equal(want, got) {
			t.Fatalf("what is others' has changed (-want +got):\n%s", cmp.Diff(want, got))
		}
	})
}

// foreign are comments, instructions, and elements that neither Define writes nor Undefine removes,
// by another reading than the package's own.
func foreign(t *rapid.T, x []byte) []string {
	var all []string
	d := xml.NewDecoder(bytes.NewReader(x))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v, of\n%s", err, x)
		}
		switch tok := tok.(type) {
		case xml.Comment:
			all = append(all, string(tok))
		case xml.ProcInst:
			all = append(all, string(tok.Inst))
		case xml.StartElement:
			switch tok.Name.Local {
			case "domain", "metadata", "memoryBacking", "source", "access", "commandline", "arg", "gpu":
			default:
				if tok.Name.Space != Namespace {
					all = append(all, fmt.Sprint(tok))
				}
			}
		}
	}
}
