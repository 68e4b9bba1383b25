package hard

import (
	"embed"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"vgpud/gpu/corpus"
	"vgpud/mediator/vgpu/abi"
)

//go:embed ptx/*.ptx
var files embed.FS

// PTX returns the text of a hand-written module, ptx/FILE.ptx. It panics if the file does not
// exist.
func PTX(file string) string {
	b, err := files.ReadFile("ptx/" + file + ".ptx")
	if err != nil {
		panic(fmt.Sprintf("hard: %v", err))
	}
	return string(b)
}

// Trick is a hand-written kernel that is hard to transform, with its launch.
type Trick struct {
	File, Entry string // the module for [PTX], and the kernel in it
	Grid, Block [3]uint32
	SharedBytes uint32
	Args        []corpus.Arg // after out, in and n
	Bare        bool         // the kernel has no parameters
	// Least are the forms that it must have, and Most those that it may have: other forms would not
	// be sound.
	Least, Most abi.PreemptForm
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

// Tricks returns all kernels of this kind.
func Tricks() []Trick { return slices.Clone(tricks) }

var tricks = []Trick{
	{File: "returns", Entry: "early_return", Grid: g(23), Block: g(96), Least: any3, Most: any3},
	{File: "returns", Entry: "divergent_loop", Grid: g(17), Block: g(70), Least: any3, Most: any3},
	{File: "returns", Entry: "whole_blocks", Grid: g(40), Block: g(40), Least: any3, Most: any3},
	{File: "returns", Entry: "exit_in_function", Grid: g(19), Block: g(64), Least: single, Most: any3},
	{File: "returns", Entry: "warp_after_return", Grid: g(31), Block: g(64), Least: single, Most: any3},
	{File: "returns", Entry: "guarded_exchange", Grid: g(31), Block: g(64), Least: single, Most: single},
	{File: "returns", Entry: "guarded_call", Grid: g(31), Block: g(64), Least: single, Most: single},
	{File: "returns", Entry: "scopes", Grid: g(21), Block: g(64), Least: single, Most: any3},
	{File: "barriers", Entry: "named", Grid: g(25), Block: g(64), Least: single, Most: any3},
	{File: "barriers", Entry: "computed", Grid: g(25), Block: g(64), Least: single, Most: any3},
	{File: "barriers", Entry: "reductions", Grid: g(25), Block: g(75), Least: single, Most: any3},
	{File: "barriers", Entry: "shared_again", Grid: g(50), Block: g(128), Least: any3, Most: any3},
	{File: "barriers", Entry: "in_function", Grid: g(20), Block: g(50), Least: any3, Most: any3},
	{File: "barriers", Entry: "in_function_divergent", Grid: g(20), Block: g(50), Least: single, Most: any3},
	{File: "barriers", Entry: "counted", Grid: g(25), Block: g(128), Least: any3, Most: any3},
	{File: "barriers", Entry: "counted_after_return", Grid: g(60), Block: g(64), Least: single, Most: single},
	{File: "barriers", Entry: "counted_after_warps", Grid: g(40), Block: g(128), Least: single, Most: any3},
	{File: "barriers", Entry: "object", Grid: g(30), Block: g(64), Least: single, Most: any3},
	{File: "lanes", Entry: "counts_lanes", Grid: g(30), Block: g(32), Least: any3, Most: any3},
	{File: "lanes", Entry: "votes_of_lanes", Grid: g(30), Block: g(32), Least: any3, Most: any3},
	{File: "indices", Entry: "three", Grid: g(5, 3, 7), Block: g(4, 2, 3), Least: any3, Most: any3},
	{File: "indices", Entry: "three", Grid: g(1, 11, 5), Block: g(2, 3, 4), Least: any3, Most: any3},
	{File: "indices", Entry: "three", Grid: g(13, 1, 2), Block: g(1, 1, 9), Least: any3, Most: any3},
	{File: "indices", Entry: "shapes", Grid: g(7, 5, 2), Block: g(33), Least: any3, Most: any3},
	{File: "operands", Entry: "operands", Grid: g(7, 5, 2), Block: g(33), Most: any3},
	{File: "vectors", Entry: "vectors", Grid: g(7, 5, 2), Block: g(33), Most: none}, // the soft GPU can't run it either
	{File: "indices", Entry: "stride", Grid: g(9), Block: g(32), Least: any3, Most: any3},
	{File: "indices", Entry: "levels", Grid: g(6, 5), Block: g(32), Least: any3, Most: any3},
	{File: "indices", Entry: "recursion", Grid: g(30), Block: g(32), Least: any3, Most: any3},
	{File: "indices", Entry: "indexed_recursion", Grid: g(30), Block: g(32), Most: any3},
	{File: "indices", Entry: "through_table", Grid: g(30), Block: g(32), Least: any3, Most: any3},
	{File: "indices", Entry: "branch_table", Grid: g(30), Block: g(32), Least: any3, Most: any3},
	{File: "memory", Entry: "dynamic_shared", Grid: g(30), Block: g(64), SharedBytes: 256, Least: any3, Most: any3},
	{File: "shared", Entry: "dynamic_aligned", Grid: g(30), Block: g(64), SharedBytes: 256, Least: any3, Most: any3},
	{File: "shared", Entry: "dynamic_behind", Grid: g(30), Block: g(64), SharedBytes: 256, Least: any3, Most: any3},
	{File: "shared", Entry: "static_aligned", Grid: g(30), Block: g(32), Least: any3, Most: any3},
	{File: "memory", Entry: "shared_size", Grid: g(30), Block: g(16), SharedBytes: 48, Least: single, Most: single | abi.PreemptCoarse},
	{File: "memory", Entry: "local_array", Grid: g(30), Block: g(32), Least: any3, Most: any3},
	{File: "memory", Entry: "prints", Grid: g(30), Block: g(32), Least: any3, Most: any3},
	{File: "memory", Entry: "last_block", Grid: g(30), Block: g(40), Least: any3, Most: any3},
	{
		File: "memory", Entry: "odd_parameters", Grid: g(30), Block: g(40), Least: any3, Most: any3,
		Args: []corpus.Arg{{Bytes: []byte{200}}, {Bytes: []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}}, {Bytes: []byte{0xff, 0xee}}},
	},
	{File: "memory", Entry: "no_parameters", Grid: g(30), Block: g(40), Bare: true, Least: any3, Most: any3},
	{File: "waits", Entry: "chain_volatile", Grid: g(30), Block: g(40), Least: persistent, Most: persistent},
	{File: "waits", Entry: "chain_acquire", Grid: g(30), Block: g(40), Least: persistent, Most: persistent},
	{File: "waits", Entry: "chain_function", Grid: g(30), Block: g(40), Most: persistent},
	{File: "waits", Entry: "chain_peek", Grid: g(30), Block: g(40), Most: persistent},
	{File: "waits", Entry: "chain_cached", Grid: g(30), Block: g(40), Most: persistent},
	{File: "waits", Entry: "chain_fence", Grid: g(30), Block: g(40), Most: persistent},
	{File: "waits", Entry: "chain_shared", Grid: g(30), Block: g(40), Most: persistent},
	{File: "waits", Entry: "locked", Grid: g(30), Block: g(40), Most: any3},
	{File: "waits", Entry: "retried", Grid: g(30), Block: g(40), Least: any3, Most: any3},
	{File: "waits", Entry: "all_blocks", Grid: g(30), Block: g(40), Most: none},
	{File: "lookback", Entry: "drawn", Grid: g(30), Block: g(40), Most: persistent},
	{File: "lookback", Entry: "taken_by_swap", Grid: g(30), Block: g(40), Most: persistent},
	{File: "lookback", Entry: "through_local", Grid: g(30), Block: g(40), Most: persistent},
	{File: "lookback", Entry: "warp_votes", Grid: g(30), Block: g(32), Most: persistent},
	{File: "lookback", Entry: "by_table", Grid: g(30), Block: g(40), Most: persistent},
	{File: "lookback", Entry: "ends_within", Grid: g(30), Block: g(20), Most: persistent},
	{File: "lookback", Entry: "two_ways_in", Grid: g(30), Block: g(40), Most: persistent},
	{File: "lookback", Entry: "by_recursion", Grid: g(30), Block: g(40), Most: none}, // the original runs out of stack if it waits for long
	{File: "lookback", Entry: "within_block", Grid: g(30), Block: g(70), Least: any3, Most: any3},
	{File: "settled", Entry: "drawn_warps", Grid: g(60), Block: g(96), Least: any3, Most: any3},
	{File: "settled", Entry: "drawn_returns", Grid: g(60), Block: g(96), Least: any3, Most: any3},
	{File: "settled", Entry: "drawn_chain", Grid: g(60), Block: g(32), Least: persistent, Most: persistent},
	{File: "offload", Entry: "region$_omp_fn$0", Grid: g(30), Block: g(32, 2), Least: any3, Most: any3},
	{File: "offload", Entry: "region$_omp_fn$0", Grid: g(6, 5), Block: g(32, 2), Least: any3, Most: any3},
	{File: "offload", Entry: "direct$_omp_fn$1", Grid: g(7, 4), Block: g(32, 2), Least: any3, Most: any3},
	{File: "offload", Entry: "locked_otherwise", Grid: g(30), Block: g(32, 2), Most: none},
	{File: "walks", Entry: "places", Grid: g(30), Block: g(96), Least: any3, Most: any3},
	{File: "walks", Entry: "reloaded", Grid: g(30), Block: g(40), Least: any3, Most: any3},
	{File: "walks", Entry: "joined", Grid: g(30), Block: g(40), Least: any3, Most: any3},
	{File: "names", Entry: "plain", Grid: g(30), Block: g(40), Least: any3, Most: any3},
	{File: "names", Entry: "taken", Grid: g(30), Block: g(40), Most: any3},
	{File: "names", Entry: "hidden", Grid: g(30), Block: g(40), Least: any3, Most: any3},
}

// bufferBytes is the size of each of a kernel's buffers.
const bufferBytes = 32 << 10

// input is the kernels' input.
func input() []byte {
	in := make([]byte, bufferBytes)
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range in {
		in[i] = byte(rng.Uint32())
	}
	return in
}

// Case returns the kernel's launch. The results of the original are the reference.
func (k *Trick) Case() *corpus.Case {
	c := &corpus.Case{
		Kernel: k.Entry,
		Buffers: []corpus.Buffer{
			{Name: "out", Mode: corpus.Scratch, Elem: corpus.U32, Size: bufferBytes, Init: make([]byte, bufferBytes)}, // some kernels wait for non-zero values
			{Name: "in", Mode: corpus.In, Elem: corpus.U32, Size: bufferBytes, Init: input()},
		},
		Steps: []corpus.Launch{{Entry: k.Entry, Grid: k.Grid, Block: k.Block, SharedBytes: k.SharedBytes}},
	}
	if !k.Bare {
		n := binary.LittleEndian.AppendUint32(nil, 1501)
		c.Steps[0].Args = append([]corpus.Arg{{Buffer: "out"}, {Buffer: "in"}, {Bytes: n}}, k.Args...)
	}
	if k.Entry == "prints" {
		for b := range k.Grid[0] {
			c.Printed = append(c.Printed, fmt.Sprintf("block %d of %d", b, k.Grid[0]))
		}
		slices.Sort(c.Printed)
	}
	return c
}
