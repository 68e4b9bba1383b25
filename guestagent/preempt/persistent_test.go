package preempt

import "testing"

func TestTakesTasks(t *testing.T) {
	tests := []struct {
		name, body string
		want       bool
	}{
		{"a stride of the grid's size", "mov.u32 %r1, %r21; L: add.u32 %r1, %r1, %r22; setp.lt.u32 %p1, %r1, %r20; @%p1 bra L;", true},
		{"the same in an inner loop", `mov.u32 %r2, 0; M: mov.u32 %r1, %r21; L: add.u32 %r1, %r1, %r22; setp.lt.u32 %p1, %r1, %r20; @%p1 bra L;
			add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 9; @%p2 bra M;`, false},
		{"a number drawn in the loop", "L: atom.global.add.u32 %r1, [%a], 1; setp.lt.u32 %p1, %r1, %r20; @%p1 bra L;", true},
		{"a number drawn before the loop", "atom.global.add.u32 %r1, [%a], 1; L: sub.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;", false},
		{"a loop over the grid's blocks", "mov.u32 %r1, 0; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, %r22; @%p1 bra L;", false},
		{"a loop over a block's share", "mov.u32 %r1, %r21; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, %r20; @%p1 bra L;", false},
		{"no loop", "atom.global.add.u32 %r1, [%a], 1;", false},
		{"a lock", "L: atom.global.cas.b32 %r1, [lock], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;", false},
		{"waiting", "L: ld.volatile.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;", false},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			_, reports := transform(t, waitingKernel(c.body), Options{})
			if got := reports["k"]; got.TakesTasks != c.want {
				t.Errorf("%+v, want TakesTasks %v", got, c.want)
			}
		})
	}
}
