package preempt

import (
	"fmt"
	"strings"
)

// Check configures how blocks learn that they are to leave. The zero Check is by far the best
// (docs/results/preemption-on-h100.md); the others are the papers', for comparison.
type Check struct {
	Word Word
	// AllThreads makes all threads of a block read the word, instead of one.
	AllThreads bool
}

// Word is the location of the evict word that blocks read.
type Word uint8

// Locations of the evict word.
const (
	// DeviceWord is in the control block, in GPU memory. The host writes it there.
	DeviceWord Word = iota
	// HostWord is in host memory, at abi.PreemptArgs.Word. Blocks read it over the bus (EffiSha
	// §6.2, FLEP §4.1).
	HostWord
	// ProxyWord is in the control block. One block of the grid, which does nothing else, copies it
	// from host memory (EffiSha §6.3). A grid of one block has no proxy and never leaves. Only
	// [Persistent] supports it.
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

// offers reports whether form f supports the check.
func (l Check) offers(f Form) bool { return l.Word != ProxyWord || f == Persistent }

// addressed replaces the word's address in a fragment.
func (l Check) addressed(fragment string) string {
	if l.Word != HostWord {
		return fragment
	}
	return strings.ReplaceAll(fragment, "[%V_control+$EVICT]", "[%V_word]")
}

// prologue returns the fragments that a kernel with this check begins with, beside fragFirst.
func (l Check) prologue() []string {
	switch l.Word {
	case HostWord:
		return []string{fragWord}
	case ProxyWord:
		return []string{fragWord, fragProxy}
	}
	return nil
}

// earlyExit returns the check of the early exit.
func (l Check) earlyExit() string {
	if l.AllThreads {
		return l.addressed(strings.Replace(fragCheck, "@%V_first ld.volatile", "ld.volatile", 1))
	}
	return l.addressed(fragCheck)
}

// fetch returns the check of a persistent block and the fetch of its next tasks. sync synchronizes
// its threads.
func (l Check) fetch(sync string) string {
	if !l.AllThreads {
		return l.addressed(fragFetch)
	}
	agree := "bar.red.or.pred"
	if sync == fragThreadSync {
		agree = "barrier.red.or.pred"
	}
	return l.addressed(strings.Replace(fragFetchAll, "$agree", agree, 1))
}

// fragWord loads the address of the word in host memory.
const fragWord = `
	.reg .b64 %V_word;
	ld.param.u64 %V_word, [V_launch+$word];
	cvta.to.global.u64 %V_word, %V_word;
`

// fragProxy makes the first of several blocks the proxy. Its first thread copies the word until all
// tasks were fetched, or the others were told to leave and none remains. (One that comes later
// still finds the word.) The proxy may occupy the only room for a block, so it also leaves if no
// other block comes for long.
const fragProxy = `
	.reg .b32 %V_tries;
	mov.u32 %V_a, %ctaid.x;
	setp.ne.u32 %V_p, %V_a, 0;
	@%V_p bra V_works;
	mov.u32 %V_a, %nctaid.x;
	setp.eq.u32 %V_p, %V_a, 1;
	@%V_p bra V_works;
	@!%V_first bra V_copied;
V_wait:
	mov.u32 %V_tries, 4096;
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
	sub.u32 %V_tries, %V_tries, 1;
	setp.ne.u32 %V_p, %V_tries, 0;
	@%V_p bra V_copy;
V_copied:
	ret;
V_works:
`

// fragFetchAll is fragFetch for all threads reading the word. They agree before any task is taken.
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
