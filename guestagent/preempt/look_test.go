package preempt

import (
	"strings"
	"testing"
)

// TestLooks: where each look reads the word, who does, and what there is of it. That it is sound is e2e/preempt's to find.
func TestLooks(t *testing.T) {
	const src = `.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
	ret;
}
`
	for _, c := range []struct {
		look                 Look
		forms                int
		device, host, copied int // reads of the word where it is, and stores of the proxy's
		guarded              bool
	}{
		{look: Look{}, forms: 3, device: 3, guarded: true},
		{look: Look{AllThreads: true}, forms: 3, device: 3},
		{look: Look{Word: HostWord}, forms: 3, host: 3, guarded: true},
		{look: Look{Word: HostWord, AllThreads: true}, forms: 3, host: 3},
		{look: Look{Word: ProxyWord}, forms: 1, device: 1, host: 1, copied: 1},
		{look: Look{Word: ProxyWord, AllThreads: true}, forms: 1, device: 1, host: 1, copied: 1},
	} {
		out, reports := transform(t, src, Options{Look: c.look})
		text := out.String()
		count := func(what string) int { return strings.Count(text, what) }
		if n := len(reports["k"].Forms); n != c.forms || !reports["k"].Preemptible {
			t.Errorf("%+v: %d forms, want %d", c.look, n, c.forms)
		}
		device, host := count("ld.volatile.global.u32 %vgpud_b, [%vgpud_control]"), count("ld.volatile.global.u32 %vgpud_b, [%vgpud_word]")
		copied := count("st.volatile.global.u32 [%vgpud_control")
		if device != c.device || host != c.host || copied != c.copied {
			t.Errorf("%+v: %d reads in GPU memory, %d in the host's, %d copies; want %d, %d, %d\n%s", c.look, device, host, copied, c.device, c.host, c.copied, text)
		}
		if guarded := strings.Contains(text, "@%vgpud_first ld.volatile"); guarded != c.guarded {
			t.Errorf("%+v: an early exit's look by one thread: %v", c.look, guarded)
		}
	}
	for _, w := range []Word{DeviceWord, HostWord, ProxyWord} {
		if got, err := ParseWord(w.String()); err != nil || got != w {
			t.Errorf("%v: %v, %v", w, got, err)
		}
	}
	if _, err := ParseWord("guest"); err == nil {
		t.Error("a word that there is not")
	}
}
