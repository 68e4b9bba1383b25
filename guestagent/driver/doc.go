// Package driver is the virtual GPU's device from user space, inside a guest: it
// finds the device, makes contexts and channels, and gives a Go API to allocate,
// copy, load modules, launch and wait.
//
// It reaches the device through a [Bus]: a PCI function ([OpenPCI]), a part of one by
// way of the agent ([DialAgent]), or over vfio-user, for a guest without a
// VMM ([DialVFIOUser]).
//
//	bus, err := driver.OpenPCI(ctx, driver.PCI{}, "")
//	dev, err := driver.Open(ctx, bus)
//	gpu, err := dev.NewContext(ctx, driver.ContextOptions{})
//	mod, err := gpu.LoadModule(ctx, ptx)
//	add, err := mod.Function(ctx, "add")
//	ch, err := gpu.NewChannel(ctx, driver.ChannelOptions{})
//	p, err := ch.Launch(ctx, add, driver.Dim{X: 64}, driver.Dim{X: 256}, 0, dst, src, uint32(n))
//	err = p.Wait(ctx)
//
// # Goroutines
//
// Everything may be called from several goroutines at once. Commands of one
// channel run in the order in which they were enqueued; channels of a context run
// beside each other.
//
// # Waiting
//
// No goroutine polls. Whoever waits for a command reads the channel's completion
// ring itself: first in a loop, for no longer than lately paid off, then asleep
// until the device interrupts. When several goroutines wait on one channel, one of
// them reads for all. What nobody waits for is taken from the ring when somebody
// waits or when the ring needs room.
//
// # Kernels that leave the GPU when asked
//
// Where a context says so ([ContextOptions].Preempt, or the agent for it), LoadModule
// has package preempt make forms of a module's kernels (variants.go), and each launch
// goes in the form that its kernel's earlier launches show to be the best (forms.go,
// package tune). To the program it is the same kernel. What can't be made, or the host
// does not take, stays as it is, with a reason ([Function.Preemption]). What is learned
// is told to a [Memory] by a goroutine of the context's (learn.go); launches wait for
// nothing of this.
//
// # A device that goes
//
// A virtual GPU can be unplugged, and the host's process behind it can end. Every
// call then returns [ErrGone] with the reason. A bus finds out by the kernel's word
// (vfio's request, an event), by asking now and then whether the registers still
// answer, and by a fault: memory of a device that is gone may not be there any more,
// which is SIGBUS. Whatever touches it does so under debug.SetPanicOnFault, and as
// soon as the end is known the bus maps memory of this process over the device's. So
// no access faults later, none reaches another device at the same address, and
// nothing of ours keeps the kernel from removing the device.
package driver
