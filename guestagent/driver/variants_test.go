package driver

import (
	"context"
	"strings"
	"testing"

	"vgpud/gpu/corpus"
	"vgpud/guestagent/preempt"
	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

func wanted(forms abi.PreemptForm) *preemption {
	return &preemption{opts: PreemptOptions{Forms: forms, Memory: cache.New()}, gpu: "a GPU"}
}

const every = abi.PreemptSingle | abi.PreemptCoarse | abi.PreemptPersistent

// entries returns the names of a module's kernels.
func entries(t *testing.T, text string) map[string]bool {
	t.Helper()
	m, err := ptx.Parse(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if _, err := ptx.Resolve(m); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	names := map[string]bool{}
	for _, it := range m.Items {
		if f, ok := it.(*ptx.Func); ok && f.Entry {
			names[f.Name] = true
		}
	}
	return names
}

// TestVariantsOfTheCorpus checks that the text loaded in place of each module parses, begins with
// the module, and has all possible forms of its kernels.
func TestVariantsOfTheCorpus(t *testing.T) {
	for _, k := range corpus.All() {
		source := k.PTX(corpus.SM80)
		v := wanted(0).variants(context.Background(), []byte(source), maxImage)
		if v.unlisted.Reason != "" {
			t.Errorf("%s: %+v", k.Name, v.unlisted)
			continue
		}
		any := abi.PreemptForm(0)
		for _, r := range v.kernels {
			any |= r.made
			if r.made != r.offered {
				t.Errorf("%s: %v made of %v", k.Name, r.made, r.offered)
			}
		}
		if (v.image != nil) != (any != 0) {
			t.Errorf("%s: %d bytes for %v", k.Name, len(v.image), any)
		}
		if any == 0 {
			continue
		}
		if !strings.HasPrefix(string(v.image), source) {
			t.Errorf("%s: the original does not come first", k.Name)
		}
		names := entries(t, string(v.image))
		for name, r := range v.kernels {
			for _, f := range []abi.PreemptForm{abi.PreemptSingle, abi.PreemptCoarse, abi.PreemptPersistent} {
				if names[preempt.EntryName(name, f)] != (r.made&f != 0) {
					t.Errorf("%s: %s has %v, made are %v", k.Name, name, f, r.made)
				}
			}
		}
	}
}

// TestFunctionsThroughPointers loads a module in which the index of functions that are called through
// pointers is placed in shared memory: the module's own functions differ.
func TestFunctionsThroughPointers(t *testing.T) {
	source := `.version 7.0
.target sm_80
.address_size 64
.func index() { .reg .b32 %r<2>; mov.u32 %r1, %ctaid.x; ret; }
.global .b64 table[1] = {index};
.visible .entry k()
{
	.reg .b64 %rd<2>;
	ld.global.u64 %rd1, [table];
	prototype: .callprototype _ ();
	call %rd1, (), prototype;
	ret;
}
`
	v := wanted(every).variants(t.Context(), []byte(source), maxImage)
	if k := v.kernels["k"]; k == nil || k.made != every {
		t.Fatalf("%+v", k)
	}
	names := entries(t, string(v.image))
	for _, f := range []abi.PreemptForm{abi.PreemptSingle, abi.PreemptCoarse, abi.PreemptPersistent} {
		if !names[preempt.EntryName("k", f)] {
			t.Errorf("no form %v", f)
		}
	}
}

// TestFewerFormsInSmallRoom makes fewer forms if the text would not fit.
func TestFewerFormsInSmallRoom(t *testing.T) {
	k, _ := corpus.ByName("matmul")
	source := []byte(k.PTX(corpus.SM80))
	whole := len(wanted(every).variants(t.Context(), source, maxImage).image)
	seen := map[abi.PreemptForm]bool{}
	for room := whole; room > len(source); room -= 64 {
		v := wanted(every).variants(t.Context(), source, room)
		r := v.kernels["matmul"]
		seen[r.made] = true
		if len(v.image) > room || r.offered != every || (r.made != every) != (r.reason == reasonTooLong) {
			t.Fatalf("%d bytes in %d, %v, %q", len(v.image), room, r.made, r.reason)
		}
	}
	for _, f := range []abi.PreemptForm{every, every &^ abi.PreemptPersistent, abi.PreemptSingle, 0} {
		if !seen[f] {
			t.Errorf("%v was never made", f)
		}
	}
}

// TestHashes checks that a kernel's hash covers what it is made from, its own text and the module's
// other parts, but neither the kernels beside it nor comments.
func TestHashes(t *testing.T) {
	const head = ".version 7.0\n.target sm_80\n.address_size 64\n"
	const a, b = ".visible .entry a() { ret; }\n", ".visible .entry b() { ret; }\n"
	hash := func(text string) cache.Hash {
		m, err := ptx.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return hashKernels(m)["a"]
	}
	first := hash(head + a)
	for text, same := range map[string]bool{
		head + a + b: true, head + "// a comment\n" + a: true,
		head + ".visible .entry a() { exit; }\n": false, head + ".global .u32 x;\n" + a: false,
		strings.Replace(head, "sm_80", "sm_90", 1) + a: false,
	} {
		if (hash(text) == first) != same {
			t.Errorf("the hash of a in %q is the same: %v", text, !same)
		}
	}
}

// TestKnownKernels makes forms according to what is known.
func TestKnownKernels(t *testing.T) {
	k, _ := corpus.ByName("matmul")
	source := []byte(k.PTX(corpus.SM80))
	key := wanted(0).variants(t.Context(), source, maxImage).kernels["matmul"].key
	class := func(tasks uint64, why tune.Why) tune.ClassRecord {
		return tune.ClassRecord{Class: tune.Shape{Tasks: tasks}.Class(), Tasks: tasks, Slots: 8, Why: why, Original: 1, Chosen: 1, Ran: 1}
	}
	for name, c := range map[string]struct {
		classes []tune.ClassRecord
		made    abi.PreemptForm
	}{
		"nothing":                {nil, every},
		"short":                  {[]tune.ClassRecord{class(10, tune.WhyShort), class(100, tune.WhyShort)}, 0},
		"short where it's small": {[]tune.ClassRecord{class(10, tune.WhyShort), class(1000, tune.WhyTooCostly)}, every},
	} {
		f, err := cache.Open(t.TempDir()+"/kernels", nil)
		if err != nil {
			t.Fatal(err)
		}
		f.Put(cache.Entry{Key: key, Record: tune.Record{Classes: c.classes}})
		p := wanted(0)
		p.opts.Memory = f
		if r := p.variants(t.Context(), source, maxImage).kernels["matmul"]; r.made != c.made || len(r.record.Classes) != len(c.classes) {
			t.Errorf("%s: %v made, %+v", name, r.made, r.record)
		}
	}
}

// BenchmarkVariants measures what making forms adds to loading a module.
func BenchmarkVariants(b *testing.B) {
	for _, name := range []string{"matmul", "fft", "particlefilter"} {
		b.Run(name, func(b *testing.B) {
			k, ok := corpus.ByName(name)
			if !ok {
				b.Fatal("the corpus has no such kernel")
			}
			source := []byte(k.PTX(corpus.SM80))
			p := wanted(0)
			b.SetBytes(int64(len(source)))
			for b.Loop() {
				p.variants(b.Context(), source, maxImage)
			}
		})
	}
}
