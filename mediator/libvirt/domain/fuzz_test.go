package domain

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// maxMessage bounds an error's text, whatever is in the document.
const maxMessage = 1024

// FuzzParse reads any document: an error is short and on one line, and a valid domain can be
// undefined and defined.
func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("testdata/*/*.xml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(paths, "testdata/started.xml") {
		x, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(x)
	}
	f.Add([]byte(`<domain><name>a</name><metadata><vgpud:devices xmlns:vgpud="urn:vgpud:domain:1" added="metadata xmlns"><vgpud:gpu weight="NaN"/></vgpud:devices></metadata></domain>`))
	f.Add([]byte(`<!DOCTYPE a [<!ENTITY b "c">]><domain>&b;</domain>`))
	f.Add([]byte(`<a:b xmlns:a='x'><![CDATA[<]]><?x?><!-- --></a:b>`))
	f.Fuzz(func(t *testing.T, x []byte) {
		if d, err := parseDocument(x); err == nil {
			checkOffsets(t, d, d.root)
		}
		v, err := Parse(x)
		if err != nil {
			checkMessage(t, err)
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("an error of type %T: %v", err, err)
			}
		} else {
			if len(v.GPUs) > MaxGPUs {
				t.Errorf("%d virtual GPUs", len(v.GPUs))
			}
			if len(v.GPUs) > 0 {
				if err := v.GPUs.Check(); err != nil {
					t.Errorf("what was read can't be written: %v", err)
				}
			}
			if err := v.Check(); err != nil {
				checkMessage(t, err)
			}
		}
		bare, err := Undefine(x)
		if err != nil {
			checkMessage(t, err)
			return
		}
		if again, err := Undefine(bare); err != nil || !bytes.Equal(again, bare) {
			t.Errorf("Undefine(Undefine(x)): %v\n%s", err, Diff("x", bare, again))
		}
		defined, err := Define(x, two, runDir)
		if err != nil {
			checkMessage(t, err)
			return
		}
		if v, err := Parse(defined); err != nil || v.Check() != nil {
			t.Errorf("Parse(Define(x)): %v, %v", v, err)
		}
		if back, err := Undefine(defined); err != nil || !bytes.Equal(back, bare) {
			t.Errorf("Undefine(Define(x)): %v\n%s", err, Diff("x", bare, back))
		}
	})
}

func checkMessage(t *testing.T, err error) {
	t.Helper()
	if msg := err.Error(); len(msg) > maxMessage || strings.ContainsAny(msg, "\n\r") {
		t.Errorf("%d bytes of message: %q", len(msg), msg)
	}
}

// checkOffsets checks the recorded positions of elements and attributes.
func checkOffsets(t *testing.T, d *document, e *element) {
	t.Helper()
	open, closing := string(d.src[e.open.from:e.open.to]), string(d.src[e.close.from:e.close.to])
	if !strings.HasPrefix(open, "<"+d.tag(e)) || !strings.HasSuffix(open, ">") || !strings.HasSuffix(d.tag(e), e.name.Local) {
		t.Errorf("the opening tag of %v is %q", e.name, open)
	}
	if e.closesItself() != strings.HasSuffix(open, "/>") || !e.closesItself() && !strings.HasPrefix(closing, "</"+d.tag(e)) {
		t.Errorf("the closing tag of %q is %q", open, closing)
	}
	at := e.open.from + 1 + len(d.tag(e))
	for i, a := range e.attrs {
		where := d.attrSpan(e, i)
		name, _, ok := strings.Cut(string(d.src[where.from:where.to]), "=")
		if !ok || where.from != at || !strings.HasSuffix(strings.TrimSpace(name), a.Name.Local) || where.to > e.open.to {
			t.Errorf("attribute %d of %q is %q", i, open, d.src[where.from:where.to])
		}
		at = where.to
	}
	at = e.open.to
	for _, c := range e.children {
		if c.parent != e || c.open.from < at || c.close.to > e.close.from {
			t.Errorf("%v is not within %q", c.name, open)
		}
		checkOffsets(t, d, c)
		at = c.close.to
	}
}

// FuzzAttribute gives a virtual GPU one attribute with any value: an accepted value is written so
// that it is read as the same.
func FuzzAttribute(f *testing.F) {
	for i, a := range attributes {
		for g := range two {
			f.Add(i, a.write(&two[g]))
		}
		f.Add(i, "NaN")
		f.Add(i, "1e9")
		f.Add(i, "0x10")
	}
	f.Fuzz(func(t *testing.T, i int, value string) {
		a := attributes[uint(i)%uint(len(attributes))]
		var g GPU
		if err := a.read(&g, value); err != nil {
			checkMessage(t, err)
			return
		}
		if err := (Devices{g}).Check(); err != nil {
			t.Errorf("%s=%q was read as %+v, which can't be written: %v", a.name, value, g, err)
		}
		if err := g.Terms().Check(); err != nil {
			t.Errorf("%s=%q was read, and the daemon would refuse it: %v", a.name, value, err)
		}
		again, err := parseDocument([]byte(`<a xmlns:vgpud="` + Namespace + `">` + g.element() + `</a>`))
		if err != nil {
			t.Fatalf("%s: %v", g.element(), err)
		}
		if got, err := again.readGPU(again.root.children[0]); err != nil || got != g {
			t.Errorf("%s=%q was read as %+v, and from %s as %+v, %v", a.name, value, g, g.element(), got, err)
		}
	})
}

// TestSlowDocuments reads the documents with the most elements, attributes, depth and declarations
// within the bounds. If the work grew faster than the document, the test would not end.
func TestSlowDocuments(t *testing.T) {
	open := `<domain type="kvm"><name>a</name><uuid>` + testUUID + `</uuid>` + q35
	fill := func(head, unit, tail string) []byte {
		n := min((maxBytes-len(open)-len(head)-len(tail)-64)/len(unit), (maxElements-64)/max(1, strings.Count(unit, "<")))
		return []byte(open + head + strings.Repeat(unit, n) + tail + "</domain>")
	}
	const ours = `<v:devices xmlns:v="urn:vgpud:domain:1"/>`
	var declared strings.Builder
	for i := range maxAttrs {
		declared.WriteString(` xmlns:p` + strings.Repeat("p", i) + `="p"`)
	}
	for name, x := range map[string][]byte{
		"elements":     fill("<devices>", "<a/>", "</devices>"),
		"children":     fill("", "<a/>", ""),
		"attributes":   fill("<devices>", "<a"+manyAttributes(maxAttrs)+"/>", "</devices>"),
		"declarations": fill(strings.Repeat("<a"+declared.String()+">", 20), "<p:a/>", strings.Repeat("</a>", 20)),
		"ours":         fill("<metadata>", ours, "</metadata>"),
		"many ours":    fill("", "<metadata>"+ours+"</metadata>", ""),
		"arguments":    fill(`<commandline xmlns="`+qemuNamespace+`">`, `<arg value="-device"/><arg value='{"driver":"vfio-user-pci","id":"vgpu0","socket":{"path":"/domains/`+testUUID+`/gpu0.sock"}}'/>`, "</commandline>"),
		"space":        fill("<metadata>", strings.Repeat(" ", 1024), ours+"</metadata>"),
		"text":         fill("<description>", strings.Repeat("&amp;", 200), "</description>"),
		"lines":        fill("<metadata>", strings.Repeat("\n", 1024), "<v:devices xmlns:v='urn:vgpud:domain:1'/></metadata>"),
	} {
		t.Run(name, func(t *testing.T) {
			if v, err := Parse(x); err != nil {
				checkMessage(t, err)
			} else if err := v.Check(); err != nil {
				checkMessage(t, err)
			}
			defined, err := Define(x, two, runDir)
			if err != nil {
				t.Fatal(err)
			}
			if len(defined) > len(x)+8192 {
				t.Errorf("%d bytes became %d", len(x), len(defined))
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	x, err := os.ReadFile("testdata/started.xml")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(x)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(x); err != nil {
			b.Fatal(err)
		}
	}
}
