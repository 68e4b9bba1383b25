package executor

import (
	"time"

	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// A train is a row of short commands that the guest has queued one behind the other, and that the
// GPU tells of together (see [gpu.Train]). To have an H100 tell of each takes as long as to launch a
// kernel: a program that queues short kernels would be half as fast as without vgpud. The guest
// sees the first ones' ends as late as the last one's. A train ends where the guest has queued
// nothing more by the time that its last command has gone to the GPU.
const (
	// maxTrain is the most commands of a train. To tell of a train and to read its times takes an
	// H200 10 µs.
	maxTrain = 32
	// trainWork is how long a train is expected to take at most.
	trainWork = 250 * time.Microsecond
	// trainCopy is the longest copy in a train, in bytes, and trainCopyWork what it counts for.
	trainCopy     = 64 << 10
	trainCopyWork = 5 * time.Microsecond
)

// lead announces the current command, which is about to go to the GPU and expected to take d. known
// is false for a launch that may take any time.
func (c *command) lead(d time.Duration, known bool) {
	ch := c.ch
	if ch.train == nil {
		return
	}
	if ch.led++; ch.led == 1 {
		ch.ledWork = 0
	}
	ch.ledWork += d
	joins := known && ch.led < maxTrain && ch.ledWork < trainWork && ch.x.o.Page.Mode() == ipc.ModeFree
	if !joins {
		ch.led = 0
	}
	ch.train.Ahead(joins)
}

// leadCopy is lead for a copy of so many bytes.
func (c *command) leadCopy(bytes uint64) { c.lead(trainCopyWork, bytes <= trainCopy) }

// endTrain has the GPU tell of the channel's last command.
func (ch *channel) endTrain() {
	if ch.led > 0 {
		ch.led = 0
		ch.gpu.Done()
	}
}

// endsTrain reports whether a command can't belong to a train.
func endsTrain(op abi.Opcode) bool {
	return op != abi.OpLaunch && op != abi.OpCopyIn && op != abi.OpCopyOut
}
