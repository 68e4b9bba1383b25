package preempt

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"vgpud/e2e/kernels"
	"vgpud/guestagent/preempt"
	"vgpud/mediator/vgpu/abi"
)

// tricky is a kernel written by hand to be hard to transform, and how to launch it.
type tricky struct {
	file, entry string
	grid, block [3]uint32
	shared      uint32
	args        []kernels.Arg // beyond out, in and n
	bare        bool          // it has no parameters
	// least are forms that it must have, most those that it may have: what is beyond
	// them cannot be sound.
	least, most abi.PreemptForm
}

const (
	none       abi.PreemptForm = 0
	single                     = abi.PreemptSingle
	persistent                 = abi.PreemptPersistent
	any3                       = abi.PreemptSingle | abi.PreemptCoarse | abi.PreemptPersistent
)

func g(x ...uint32) [3]uint32 {
	d := [3]uint32{1, 1, 1}
	copy(d[:], x)
	return d
}

var tricks = []tricky{
	{file: "returns", entry: "early_return", grid: g(23), block: g(96), least: any3, most: any3},
	{file: "returns", entry: "divergent_loop", grid: g(17), block: g(70), least: any3, most: any3},
	{file: "returns", entry: "whole_blocks", grid: g(40), block: g(40), least: any3, most: any3},
	{file: "returns", entry: "exit_in_function", grid: g(19), block: g(64), least: single, most: any3},
	{file: "returns", entry: "warp_after_return", grid: g(31), block: g(64), least: single, most: any3},
	{file: "returns", entry: "guarded_exchange", grid: g(31), block: g(64), least: single, most: single},
	{file: "returns", entry: "guarded_call", grid: g(31), block: g(64), least: single, most: single},
	{file: "returns", entry: "scopes", grid: g(21), block: g(64), least: single, most: any3},
	{file: "barriers", entry: "named", grid: g(25), block: g(64), least: single, most: any3},
	{file: "barriers", entry: "computed", grid: g(25), block: g(64), least: single, most: any3},
	{file: "barriers", entry: "reductions", grid: g(25), block: g(75), least: single, most: any3},
	{file: "barriers", entry: "shared_again", grid: g(50), block: g(128), least: any3, most: any3},
	{file: "barriers", entry: "in_function", grid: g(20), block: g(50), least: any3, most: any3},
	{file: "barriers", entry: "in_function_divergent", grid: g(20), block: g(50), least: single, most: any3},
	{file: "barriers", entry: "object", grid: g(30), block: g(64), least: single, most: any3},
	{file: "indices", entry: "three", grid: g(5, 3, 7), block: g(4, 2, 3), least: any3, most: any3},
	{file: "indices", entry: "three", grid: g(1, 11, 5), block: g(2, 3, 4), least: any3, most: any3},
	{file: "indices", entry: "three", grid: g(13, 1, 2), block: g(1, 1, 9), least: any3, most: any3},
	{file: "indices", entry: "shapes", grid: g(7, 5, 2), block: g(33), least: any3, most: any3},
	{file: "operands", entry: "operands", grid: g(7, 5, 2), block: g(33), most: any3},
	{file: "vectors", entry: "vectors", grid: g(7, 5, 2), block: g(33), most: none}, // nor can the soft GPU run it
	{file: "indices", entry: "stride", grid: g(9), block: g(32), least: any3, most: any3},
	{file: "indices", entry: "levels", grid: g(6, 5), block: g(32), least: any3, most: any3},
	{file: "indices", entry: "recursion", grid: g(30), block: g(32), least: any3, most: any3},
	{file: "indices", entry: "indexed_recursion", grid: g(30), block: g(32), most: any3},
	{file: "indices", entry: "through_table", grid: g(30), block: g(32), most: any3},
	{file: "indices", entry: "branch_table", grid: g(30), block: g(32), least: any3, most: any3},
	{file: "memory", entry: "dynamic_shared", grid: g(30), block: g(64), shared: 256, least: any3, most: any3},
	{file: "memory", entry: "shared_size", grid: g(30), block: g(16), shared: 48, least: single, most: single | abi.PreemptCoarse},
	{file: "memory", entry: "local_array", grid: g(30), block: g(32), least: any3, most: any3},
	{file: "memory", entry: "prints", grid: g(30), block: g(32), least: any3, most: any3},
	{file: "memory", entry: "last_block", grid: g(30), block: g(40), least: any3, most: any3},
	{
		file: "memory", entry: "odd_parameters", grid: g(30), block: g(40), least: any3, most: any3,
		args: []kernels.Arg{{Bytes: []byte{200}}, {Bytes: []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}}, {Bytes: []byte{0xff, 0xee}}},
	},
	{file: "memory", entry: "no_parameters", grid: g(30), block: g(40), bare: true, least: any3, most: any3},
	{file: "waits", entry: "chain_volatile", grid: g(30), block: g(40), least: persistent, most: persistent},
	{file: "waits", entry: "chain_acquire", grid: g(30), block: g(40), least: persistent, most: persistent},
	{file: "waits", entry: "chain_function", grid: g(30), block: g(40), most: persistent},
	{file: "waits", entry: "chain_peek", grid: g(30), block: g(40), most: persistent},
	{file: "waits", entry: "chain_cached", grid: g(30), block: g(40), most: persistent},
	{file: "waits", entry: "chain_fence", grid: g(30), block: g(40), most: persistent},
	{file: "waits", entry: "chain_shared", grid: g(30), block: g(40), most: persistent},
	{file: "waits", entry: "locked", grid: g(30), block: g(40), most: any3},
	{file: "waits", entry: "all_blocks", grid: g(30), block: g(40), most: none},
	{file: "lookback", entry: "drawn", grid: g(30), block: g(40), most: persistent},
	{file: "lookback", entry: "taken_by_swap", grid: g(30), block: g(40), most: persistent},
	{file: "lookback", entry: "through_local", grid: g(30), block: g(40), most: persistent},
	{file: "lookback", entry: "warp_votes", grid: g(30), block: g(32), most: persistent},
	{file: "lookback", entry: "by_table", grid: g(30), block: g(40), most: persistent},
	{file: "lookback", entry: "ends_within", grid: g(30), block: g(20), most: persistent},
	{file: "lookback", entry: "two_ways_in", grid: g(30), block: g(40), most: persistent},
	{file: "lookback", entry: "by_recursion", grid: g(30), block: g(40), most: none}, // the original runs out of stack where it waits for long
	{file: "lookback", entry: "within_block", grid: g(30), block: g(70), least: any3, most: any3},
	{file: "settled", entry: "drawn_warps", grid: g(60), block: g(96), least: any3, most: any3},
	{file: "settled", entry: "drawn_returns", grid: g(60), block: g(96), least: any3, most: any3},
	{file: "settled", entry: "drawn_chain", grid: g(60), block: g(32), least: persistent, most: persistent},
	{file: "names", entry: "plain", grid: g(30), block: g(40), least: any3, most: any3},
	{file: "names", entry: "taken", grid: g(30), block: g(40), most: any3},
	{file: "names", entry: "hidden", grid: g(30), block: g(40), least: any3, most: any3},
}

// trickyBytes is the size of each of a tricky kernel's buffers.
const trickyBytes = 32 << 10

// trickyInput is what their kernels read.
func trickyInput() []byte {
	in := make([]byte, trickyBytes)
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range in {
		in[i] = byte(rng.Uint32())
	}
	return in
}

// kase makes the case: what the original leaves is the reference.
func (k *tricky) kase() *kernels.Case {
	c := &kernels.Case{
		Kernel: k.entry,
		Buffers: []kernels.Buffer{
			{Name: "out", Mode: kernels.Scratch, Elem: kernels.U32, Size: trickyBytes},
			{Name: "in", Mode: kernels.In, Elem: kernels.U32, Size: trickyBytes, Init: trickyInput()},
		},
		Steps: []kernels.Launch{{Entry: k.entry, Grid: k.grid, Block: k.block, SharedBytes: k.shared}},
	}
	if !k.bare {
		n := binary.LittleEndian.AppendUint32(nil, 1501)
		c.Steps[0].Args = append([]kernels.Arg{{Buffer: "out"}, {Buffer: "in"}, {Bytes: n}}, k.args...)
	}
	if k.entry == "prints" {
		for b := range k.grid[0] {
			c.Printed = append(c.Printed, fmt.Sprintf("block %d of %d", b, k.grid[0]))
		}
		slices.Sort(c.Printed)
	}
	return c
}

// TestTricky: each of them is refused with a reason, or sound in the forms offered.
func TestTricky(t *testing.T) {
	for _, k := range tricks {
		t.Run(fmt.Sprintf("%s/%s/%dx%dx%d", k.file, k.entry, k.grid[0], k.grid[1], k.grid[2]), func(t *testing.T) {
			t.Parallel()
			src, err := os.ReadFile("testdata/" + k.file + ".ptx")
			if err != nil {
				t.Fatal(err)
			}
			m, reports := transform(t, string(src))
			var forms abi.PreemptForm
			for _, r := range reports {
				if r.Kernel != k.entry {
					continue
				}
				for _, f := range r.Forms {
					forms |= f
				}
				t.Logf("forms %v, reason %q %s, waits %v, barriers %+v", forms, r.Reason, r.Detail, r.WaitsForBlocks, r.Barriers)
				if (forms == 0) == r.Preemptible || forms&^single == 0 && r.Reason == preempt.None {
					t.Errorf("forms %v, preemptible %v, without a reason", forms, r.Preemptible)
				}
			}
			if k.least&^forms != 0 || forms&^k.most != 0 {
				t.Errorf("forms %v, want at least %v and at most %v", forms, k.least, k.most)
			}
			if forms == 0 {
				return
			}
			var sum tally
			sound(t, m, 40, &sum, k.kase())
		})
	}
}

// TestManyUnits has more units than a list holds, so that what is skipped is noted
// in a bitmap.
func TestManyUnits(t *testing.T) {
	src, err := os.ReadFile("testdata/memory.ptx")
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range allForms {
		t.Run(form.String(), func(t *testing.T) {
			t.Parallel()
			m, _ := transform(t, string(src))
			k := tricky{entry: "no_parameters", grid: g(701, 101), block: g(1), bare: true}
			r, err := newRig(t.Context(), m, k.kase())
			if err != nil {
				t.Fatal(err)
			}
			if err := r.settle(1, 1); err != nil {
				t.Fatal(err)
			}
			r.only, r.group = form, 1
			again := 0
			for n := range uint64(4) {
				d := newDrive(r, n)
				if err := d.run(); err != nil {
					t.Fatalf("run %d: %v\n%v", n, err, d)
				}
				again += d.evicted
			}
			if again == 0 {
				t.Error("nothing was evicted")
			}
		})
	}
}
