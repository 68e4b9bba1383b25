package rm

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"vgpud/gpu/nvidia/rm/abi"
)

// Objects are the handles of one CUDA context's objects in the driver. A process sends them as JSON
// to the process that is to control it, with a descriptor of the file to which they belong.
type Objects struct {
	Client    abi.Handle `json:"client"`
	Subdevice abi.Handle `json:"subdevice"`
	// Group is the compute engine's channel group, and Channels are its channels.
	Group    abi.Handle   `json:"group"`
	Channels []abi.Handle `json:"channels"`
	// CopyGroups are the groups of copy engines, and Copies their channels.
	CopyGroups []abi.Handle `json:"copy_groups,omitempty"`
	Copies     []abi.Handle `json:"copies,omitempty"`
}

// Own is a CUDA context of this process. Node is a descriptor of its file, which the caller closes.
type Own struct {
	Objects
	Node Node
}

// ErrNoContext is returned by FindOwn if it finds no CUDA context of this process.
var ErrNoContext = errors.New("no CUDA context of this process found among the driver's objects")

// Bounds of FindOwn's search. libcuda makes a process's client when it starts, with few clients of other
// processes between that and one that is made soon after. Each lookup of a client that doesn't exist costs a line in the
// kernel's log, so near numbers come first.
const (
	nearClients = 16
	farClients  = 512

	// libcuda numbers a client's objects upwards from firstObject, with gaps.
	firstObject abi.Handle = 0x5c000000
	maxObjects             = 1 << 14
	maxGap                 = 1024
)

// FindOwn finds the newest CUDA context of this process. It must be called right after cuCtxCreate.
// It searches this process's descriptors of the control node for libcuda's client, and then the
// client's objects. The client's number is just below that of a client made soon after libcuda
// started: earlier is one, of this process. Without one it must be just below a client's made now. It
// takes about ten milliseconds.
func FindOwn(k Kernel, earlier *Client) (*Own, error) {
	next, err := nextClient(k)
	if err != nil {
		return nil, err
	}
	nodes, err := k.Own()
	if err != nil {
		return nil, err
	}
	above := []abi.Handle{next}
	if earlier != nil {
		above = []abi.Handle{earlier.call.client, next}
	}
	var found *Own
	for _, r := range [][2]int{{1, nearClients}, {nearClients + 1, farClients}} {
		for _, h := range above {
			if found == nil {
				found = findIn(nodes, h, r[0], r[1])
			}
		}
	}
	for _, n := range nodes {
		if found == nil || n != found.Node {
			n.Close() // a duplicate; the original stays open
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: %d descriptors of /dev/%s, the %d clients below each of %#x", ErrNoContext, len(nodes), ControlNode, farClients, above)
	}
	return found, nil
}

// nextClient returns the number of a client made now. The client is freed before it returns.
func nextClient(k Kernel) (abi.Handle, error) {
	n, err := k.Open(ControlNode)
	if err != nil {
		return 0, err
	}
	defer n.Close() // and the client with it
	c := &caller{node: n}
	return c.alloc("make a client", 0, abi.NV01_ROOT_CLIENT, nil)
}

// before returns the client number d below h, with wrap-around.
func before(h abi.Handle, d int) abi.Handle {
	return abi.RS_CLIENT_HANDLE_BASE + (h-abi.RS_CLIENT_HANDLE_BASE-abi.Handle(d)+abi.ClientSpan)%abi.ClientSpan
}

// findIn searches the clients numbered from to to below next for a context.
func findIn(nodes []Node, next abi.Handle, from, to int) *Own {
	for _, n := range nodes {
		for d := from; d <= to; d++ {
			c := &caller{node: n, client: before(next, d)}
			if c.known() != nil {
				continue
			}
			if o, ok := c.objects(); ok {
				return &Own{Objects: o, Node: n}
			}
		}
	}
	return nil
}

// all iterates over the objects that libcuda numbered, in the order of their numbers.
func (c *caller) all() iter.Seq2[abi.Handle, abi.Class] {
	return func(yield func(abi.Handle, abi.Class) bool) {
		for h, last := firstObject, firstObject; h < firstObject+maxObjects && h-last < maxGap; h++ {
			class, err := c.class(h)
			if err != nil {
				continue
			}
			if last = h; !yield(h, class) {
				return
			}
		}
	}
}

// objects finds the newest context among the client's objects.
func (c *caller) objects() (Objects, bool) {
	channels := make(map[abi.Handle][]abi.Handle) // by group
	subdevices := make(map[abi.Handle]abi.Handle) // by device
	var groups, computes []abi.Handle
	for h, class := range c.all() {
		switch {
		case class == abi.KEPLER_CHANNEL_GROUP_A:
			groups = append(groups, h)
		case class == abi.NV20_SUBDEVICE_0:
			if p, err := c.parent(h); err == nil {
				subdevices[p] = h
			}
		case class.Channel():
			if p, err := c.parent(h); err == nil {
				channels[p] = append(channels[p], h)
			}
		case class.Compute():
			computes = append(computes, h)
		}
	}
	// The channel of the newest compute object belongs to the newest context's compute group.
	for _, h := range slices.Backward(computes) {
		channel, err := c.parent(h)
		if err != nil {
			continue
		}
		group, err := c.parent(channel)
		if err != nil || len(channels[group]) == 0 {
			continue
		}
		device, err := c.parent(group)
		if err != nil || subdevices[device] == 0 {
			continue
		}
		o := Objects{Client: c.client, Subdevice: subdevices[device], Group: group, Channels: channels[group]}
		compute := c.computeGroups(computes)
		for _, g := range groups {
			if p, err := c.parent(g); err == nil && p == device && !compute[g] {
				o.CopyGroups = append(o.CopyGroups, g)
				o.Copies = append(o.Copies, channels[g]...)
			}
		}
		return o, true
	}
	return Objects{}, false
}

// computeGroups returns the groups with a channel that has a compute object.
func (c *caller) computeGroups(computes []abi.Handle) map[abi.Handle]bool {
	groups := make(map[abi.Handle]bool)
	for _, h := range computes {
		if channel, err := c.parent(h); err == nil {
			if g, err := c.parent(channel); err == nil {
				groups[g] = true
			}
		}
	}
	return groups
}
