package ipc

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// allocated returns how much memory a page takes.
func allocated(t *testing.T, p *ControlPage) int64 {
	t.Helper()
	st, err := p.File().Stat()
	if err != nil {
		t.Fatal(err)
	}
	return st.Sys().(*syscall.Stat_t).Blocks * 512
}

// TestLookingTakesNoMemory: whatever the daemon asks in each round of a guest that has used nothing, it
// allocates no more of the guest's page than what it writes itself.
func TestLookingTakesNoMemory(t *testing.T) {
	_, daemon := newPages(t)
	daemon.SetBill(Bill{Used: 1, Caused: 1})
	before := allocated(t, daemon)
	if daemon.UsedContexts() != 0 {
		t.Error("a context is used")
	}
	for slots := daemon.TouchedSlots(); slots != 0; slots &= slots - 1 {
		if _, ok := daemon.LaunchSlot(bits.TrailingZeros64(slots)).Read(); ok {
			t.Error("there is a launch")
		}
	}
	if all, sums := daemon.EventKernels(); len(all) > 0 || sums != (EventSums{}) {
		t.Error("there are events")
	}
	daemon.SetWorkLogWanted(false)
	if after := allocated(t, daemon); after != before {
		t.Errorf("the page takes %d bytes, and took %d before anybody looked", after, before)
	}
}

// TestEachIsFound: a context or launch slot is found as soon as it is used, whichever others are.
func TestEachIsFound(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			guest, daemon := newPages(t)
			var contexts uint32
			for _, i := range r.Perm(MaxContexts) {
				guest.Context(i).Reset(100 + i)
				contexts |= 1 << i
				if got := daemon.UsedContexts(); got != contexts {
					t.Fatalf("contexts %032b are used, want %032b", got, contexts)
				}
			}
			var slots []int
			for _, i := range r.Perm(MaxLaunchSlots) {
				guest.slots[i].l.turn.Store(uint64(newTurn(uint64(i)+1, 0, slotstate.Ready)))
				slots = append(slots, i)
				if mask := daemon.TouchedSlots(); slices.ContainsFunc(slots, func(i int) bool { return mask&(1<<i) == 0 }) {
					t.Fatalf("slots %064b may have launches, and %v have", mask, slots)
				}
			}
			guest.Context(3).Free()
			if got, want := daemon.UsedContexts(), contexts&^(1<<3); got != want {
				t.Errorf("contexts %032b are used, want %032b", got, want)
			}
			guest.SetEventKernel(EventKernel{Number: abi.MaxEventKernels - 1, Context: 2, Name: "ping", Ended: 7})
			if all, sums := daemon.EventKernels(); len(all) != 1 || sums.Ended != 7 {
				t.Errorf("events %+v, %+v", all, sums)
			}
			daemon.SetWorkLogWanted(true)
			if !guest.WorkLog(0).Wanted() {
				t.Error("no work log is wanted")
			}
			if daemon.SetWorkLogWanted(false); guest.WorkLog(0).Wanted() {
				t.Error("the work log is still wanted")
			}
		})
	}
}
