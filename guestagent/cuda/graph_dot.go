package cuda

import (
	"fmt"
	"os"
	"strings"
)

// nodeNames are the kinds of nodes as a drawing shows them.
var nodeNames = map[uint32]string{
	GraphNodeTypeKernel: "kernel", GraphNodeTypeMemcpy: "memcpy", GraphNodeTypeMemset: "memset", GraphNodeTypeHost: "host",
	GraphNodeTypeGraph: "graph", GraphNodeTypeEmpty: "empty", GraphNodeTypeWaitEvent: "event wait", GraphNodeTypeEventRecord: "event record",
	GraphNodeTypeMemAlloc: "memory allocation", GraphNodeTypeMemFree: "memory free",
}

// draw writes a graph in Graphviz' language.
func (g *graph) draw(b *strings.Builder, prefix string) {
	for _, n := range g.nodes {
		label := nodeNames[n.op.kind()]
		switch op := n.op.(type) {
		case *kernelNode:
			label = fmt.Sprintf("%s\\n<<<%v, %v, %d>>>", op.f.name, op.l.grid, op.l.block, op.l.shared)
		case *copyNode:
			label = fmt.Sprintf("memcpy\\n%d × %d × %d bytes", op.p.Width, op.p.Height, op.p.Depth)
		case *childNode:
			fmt.Fprintf(b, "subgraph cluster_%s%d {\nlabel=%q;\n", prefix, n.id, fmt.Sprint("graph ", n.id))
			op.g.draw(b, fmt.Sprintf("%s%d_", prefix, n.id))
			b.WriteString("}\n")
		}
		fmt.Fprintf(b, "%q [shape=box label=\"%s\"];\n", fmt.Sprint(prefix, n.id), label)
		for _, d := range n.deps {
			fmt.Fprintf(b, "%q -> %q;\n", fmt.Sprint(prefix, d.id), fmt.Sprint(prefix, n.id))
		}
	}
}

// GraphDebugDotPrint is cuGraphDebugDotPrint.
func (c *Call) GraphDebugDotPrint(h Handle, path *byte, _ uint32) Result {
	name, ok := text(path)
	c.d.graphs.mu.Lock()
	g := c.graph(h)
	var b strings.Builder
	if g != nil {
		b.WriteString("digraph dot {\n")
		g.draw(&b, "")
		b.WriteString("}\n")
	}
	c.d.graphs.mu.Unlock()
	if g == nil || !ok {
		return ErrorInvalidValue
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o666); err != nil {
		return ErrorOperatingSystem
	}
	return Success
}
