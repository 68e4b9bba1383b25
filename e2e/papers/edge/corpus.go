package main

import (
	"fmt"

	"vgpud/e2e/papers/kernelcost"
	"vgpud/gpu/corpus"
	"vgpud/gpu/soft/machine/warps"
	"vgpud/gpu/soft/simt"
	"vgpud/ptx"
)

// seed is that of the corpus' inputs.
const seed = 1

// app is a program that runs on the GPU.
type app struct {
	name  string // the paper's
	grids []warps.Grid
}

// source is where an app's launches come from.
type source struct {
	name, kernel string
	entry        string // of which all launches are taken; "" for every entry
	size         corpus.Size
	most         int // launches, 0 for all
	waves        int // how often its grids fill the GPU at least
}

// backgrounds are the paper's kernels (§V): figure 11's nine, of which figures 12 and 13 have four.
var backgrounds = []source{
	{name: "BP", kernel: "backprop", size: corpus.Small, waves: 2},
	{name: "BFS", kernel: "bfs", size: corpus.Small, waves: 2},
	{name: "KMN", kernel: "kmeans", size: corpus.Small, most: 3, waves: 1},
	{name: "LUD", kernel: "lud", size: corpus.Large, most: 6, waves: 1},
	{name: "SRAD", kernel: "srad", size: corpus.Small, most: 3, waves: 1},
	{name: "SC", kernel: "streamcluster", size: corpus.Small, most: 1, waves: 1},
	{name: "MM", kernel: "matmul", size: corpus.Large, waves: 2},
	{name: "CONV1", kernel: "convolution", entry: "conv_color", size: corpus.Large, waves: 2},
	{name: "CONV2", kernel: "convolution", entry: "conv_sparse", size: corpus.Large, waves: 1},
}

// shared are the backgrounds of figures 12 and 13, and fitting those of which a warp has at least as
// many registers as any event.
var (
	shared  = []string{"CONV1", "MM", "BP", "BFS"}
	fitting = []string{"CONV1", "MM"}
)

// networked are the event kernels, each of which is a warp: 32 requests or, of IPSec, a packet.
var networked = []source{
	{name: "IPv4", kernel: "ipv4", size: corpus.Small, most: 1},
	{name: "IPv6", kernel: "ipv6", size: corpus.Small, most: 1},
	{name: "MemC", kernel: "memcached", size: corpus.Small, most: 1},
	{name: "IPSec", kernel: "ipsec", size: corpus.Small, most: 1},
}

// pinging is the event of figure 11, which needs little.
var pinging = source{name: "ping", kernel: "ping", size: corpus.Trivial, most: 1}

// recorder is the GPU on which launches are executed to record them.
var recorder = kernelcost.GPU{SMs: 16, Blocks: 8, Threads: 2048, WarpTime: 1}

// record executes an app and returns it. The paper sets the size of inputs so that events are not
// favoured by contexts that no block is left for (§V): grids fill the GPU as often as the source says.
// Launches of fewer blocks than half the cores stay as they are.
func record(s source) (*app, error) {
	k, ok := corpus.ByName(s.kernel)
	if !ok {
		return nil, fmt.Errorf("no kernel %s", s.kernel)
	}
	parsed, err := ptx.Parse(k.PTX(corpus.SM80))
	if err != nil {
		return nil, err
	}
	c := k.Case(s.size, seed)
	bench, err := kernelcost.New(parsed, c, simt.Options{Traces: true})
	if err != nil {
		return nil, err
	}
	a := &app{name: s.name}
	for i := range c.Steps {
		step := &c.Steps[i]
		if s.entry != "" && step.Entry != s.entry {
			continue
		}
		if len(a.grids) == s.most && s.most > 0 {
			break
		}
		t, err := bench.Trace(recorder, step)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		threads := int(step.Block[0] * step.Block[1] * step.Block[2])
		shared := bench.Module.Kernel(step.Entry).Attributes().SharedBytes + uint64(step.SharedBytes)
		g := warps.Grid{Kernel: warps.NewKernel(step.Entry, t, k.Registers(step.Entry), threads, int(shared)), Blocks: len(t.Blocks)}
		if g.Blocks >= warps.TableII.Cores/2 {
			g.Blocks = max(g.Blocks, s.waves*warps.TableII.Capacity(g.Kernel))
		}
		a.grids = append(a.grids, g)
	}
	return a, nil
}
