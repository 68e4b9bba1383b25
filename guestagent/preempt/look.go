package preempt

import (
	"fmt"
	"strings"
)

// Look is how blocks learn that they are to leave. The zero Look is the one to use, by far
// (docs/results/preemption-on-h100.md); the others are the papers', to measure against.
type Look struct {
	Word Word
	// AllThreads has all threads of a block read the word, rather than one.
	AllThreads bool
}

// Word is where the evict word is that blocks read.
type Word uint8

// The words.
const (
	// DeviceWord is in the control block, in GPU memory; the host writes it there.
	DeviceWord Word = iota
	// HostWord is in host memory, at abi.PreemptArgs.Word, and read over the bus (EffiSha §6.2, FLEP §4.1).
	HostWord
	// ProxyWord is in the control block, and one block of the grid, which does nothing else, copies the one in host
	// memory there (EffiSha §6.3). A grid of one block has no proxy, and never leaves. Only [Persistent] can be had.
	ProxyWord
)

var wordNames = []string{"device", "host", "proxy"}

func (w Word) String() string {
	if int(w) < len(wordNames) {
		return wordNames[w]
	}
	return fmt.Sprintf("Word(%d)", w)
}

// ParseWord is the inverse of [Word.String].
func ParseWord(text string) (Word, error) {
	for i, name := range wordNames {
		if name == text {
			return Word(i), nil
		}
	}
	return 0, fmt.Errorf("evict word %q: want %s", text, strings.Join(wordNames, ", "))
}

// offers reports whether form f can be had with the look.
func (l Look) offers(f Form) bool { return l.Word != ProxyWord || f == Persistent }

// at replaces, in a fragment that reads the word, its place by where it is.
func (l Look) at(fragment string) string {
	if l.Word != HostWord {
		return fragment
	}
	return strings.ReplaceAll(fragment, "[%V_control+$EVICT]", "[%V_word]")
}

// first is what a kernel that looks so begins with beside fragFirst.
func (l Look) first() []string {
	switch l.Word {
	case HostWord:
		return []string{fragWord}
	case ProxyWord:
		return []string{fragWord, fragProxy}
	}
	return nil
}

// exit is the early exit's look.
func (l Look) exit() string {
	if l.AllThreads {
		return l.at(strings.Replace(fragLook, "@%V_first ld.volatile", "ld.volatile", 1))
	}
	return l.at(fragLook)
}

// fetch is a persistent block's, with the fetch of its next tasks. meet is how its threads meet.
func (l Look) fetch(meet string) string {
	if !l.AllThreads {
		return l.at(fragFetch)
	}
	agree := "bar.red.or.pred"
	if meet == fragThreadsMeet {
		agree = "barrier.red.or.pred"
	}
	return l.at(strings.Replace(fragFetchAll, "$agree", agree, 1))
}

// fragWord finds the word in host memory.
const fragWord = `
	.reg .b64 %V_word;
	ld.param.u64 %V_word, [V_launch+$word];
	cvta.to.global.u64 %V_word, %V_word;
`

// fragProxy makes the first of several blocks the proxy: its first thread copies the word until all tasks were fetched,
// or the others were told to leave and none is inside any more. (One that comes later still finds the word there.) It may
// have the only room that there is for a block, so where nobody comes for long it leaves too.
const fragProxy = `
	.reg .b32 %V_patience;
	mov.u32 %V_a, %ctaid.x;
	setp.ne.u32 %V_p, %V_a, 0;
	@%V_p bra V_works;
	mov.u32 %V_a, %nctaid.x;
	setp.eq.u32 %V_p, %V_a, 1;
	@%V_p bra V_works;
	@!%V_first bra V_copied;
V_wait:
	mov.u32 %V_patience, 4096;
V_copy:
	ld.volatile.global.u32 %V_b, [%V_word];
	st.volatile.global.u32 [%V_control+$EVICT], %V_b;
	ld.volatile.global.u32 %V_t, [%V_control+$NEXT];
	ld.param.u32 %V_a, [V_launch+$tasks];
	setp.ge.u32 %V_p, %V_t, %V_a;
	@%V_p bra V_copied;
	ld.volatile.global.u32 %V_t, [%V_control+$INSIDE];
	setp.ne.u32 %V_p, %V_t, 0;
	@%V_p bra V_wait;
	setp.ne.u32 %V_p, %V_b, 0;
	@%V_p bra V_copied;
	sub.u32 %V_patience, %V_patience, 1;
	setp.ne.u32 %V_p, %V_patience, 0;
	@%V_p bra V_copy;
V_copied:
	ret;
V_works:
`

// fragFetchAll is fragFetch where all threads read the word, and agree before any task is taken.
const fragFetchAll = `
V_fetch:
	setp.ne.u32 %V_p, %V_until, 0;
	@%V_p bra V_take;
	ld.param.u32 %V_until, [V_launch+$every];
	ld.volatile.global.u32 %V_b, [%V_control+$EVICT];
	mov.u32 %V_a, %smid;
	setp.lt.u32 %V_p, %V_a, %V_b;
	$agree %V_p, 0, %V_p;
	@%V_p bra V_leave;
V_take:
	sub.u32 %V_until, %V_until, 1;
	@!%V_first bra V_share;
	ld.param.u32 %V_a, [V_launch+$group];
	atom.global.add.u32 %V_t, [%V_control+$NEXT], %V_a;
	st.shared.u32 [%V_place], %V_t;
V_share:
`
