package preempt

import (
	"strings"
	"testing"
)

// TestChecks checks where each kind of check reads the word, which threads do, and which forms
// support it. e2e/preempt tests that the kinds are sound.
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
		check                Check
		forms                int
		device, host, copied int // reads of the word in each place, and stores by the proxy
		guarded              bool
	}{
		{check: Check{}, forms: 3, device: 3, guarded: true},
		{check: Check{AllThreads: true}, forms: 3, device: 3},
		{check: Check{Word: HostWord}, forms: 3, host: 3, guarded: true},
		{check: Check{Word: HostWord, AllThreads: true}, forms: 3, host: 3},
		{check: Check{Word: ProxyWord}, forms: 1, device: 1, host: 1, copied: 1},
		{check: Check{Word: ProxyWord, AllThreads: true}, forms: 1, device: 1, host: 1, copied: 1},
	} {
		out, reports := transform(t, src, Options{Check: c.check})
		text := out.String()
		count := func(what string) int { return strings.Count(text, what) }
		if n := len(reports["k"].Forms); n != c.forms || !reports["k"].Preemptible {
			t.Errorf("%+v: %d forms, want %d", c.check, n, c.forms)
		}
		device, host := count("ld.volatile.global.u32 %vgpud_b, [%vgpud_control]"), count("ld.volatile.global.u32 %vgpud_b, [%vgpud_word]")
		copied := count("st.volatile.global.u32 [%vgpud_control")
		if device != c.device || host != c.host || copied != c.copied {
			t.Errorf("%+v: %d reads in GPU memory, %d in the host's, %d copies; want %d, %d, %d\n%s", c.check, device, host, copied, c.device, c.host, c.copied, text)
		}
		if guarded := strings.Contains(text, "@%vgpud_first ld.volatile"); guarded != c.guarded {
			t.Errorf("%+v: an early exit's check by one thread: %v", c.check, guarded)
		}
	}
	for _, w := range []Word{DeviceWord, HostWord, ProxyWord} {
		if got, err := ParseWord(w.String()); err != nil || got != w {
			t.Errorf("%v: %v, %v", w, got, err)
		}
	}
	if _, err := ParseWord("guest"); err == nil {
		t.Error("an unknown word")
	}
}
