package preempt

import (
	"strings"
	"testing"
)

// TestChecks checks where each kind of check reads the word, which threads do, and which forms support it. e2e/preempt tests
// that the kinds are sound.
func TestChecks(t *testing.T) {
	const src = `.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
	ret;
}
`
	for _, c := range []struct {
		look                 Check
		forms                int
		device, host, copied int // reads of the word in each place, and stores by the proxy
		guarded              bool
	}{
		{look: Check{}, forms: 3, device: 3, guarded: true},
		{look: Check{AllThreads: true}, forms: 3, device: 3},
		{look: Check{Word: HostWord}, forms: 3, host: 3, guarded: true},
		{look: Check{Word: HostWord, AllThreads: true}, forms: 3, host: 3},
		{look: Check{Word: ProxyWord}, forms: 1, device: 1, host: 1, copied: 1},
		{look: Check{Word: ProxyWord, AllThreads: true}, forms: 1, device: 1, host: 1, copied: 1},
	} {
		out, reports := transform(t, src, Options{Check: c.look})
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
