// Package driver gives programs in a guest the virtual GPU: it finds the device, makes contexts and
// channels, and allocates, copies, loads modules, launches and waits. It is a Go API at the level
// of CUDA's driver API; it knows no CUDA names or handles.
//
// It reaches the device through a [Bus]: a PCI function ([OpenPCI]), a part of one that the agent
// shares ([DialAgent]), or vfio-user, for a guest without a VMM ([DialVFIOUser]).
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
// # Goroutines and locks
//
// All methods may be called from several goroutines at once. Commands of one channel run in the
// order in which they were enqueued; channels of a context run beside each other.
//
// Locks are taken in this order: Device.regs; a kernel's occupancyMu; Context.mu; a channel's
// leader, submit and windowsMu; forms.mu; preemption.mu. Device.slotsMu, staging.mu, Event.mu and
// notifier.mu are held for no other lock. A launch that completes takes forms.mu under the leader
// lock, so no command may be waited for while forms.mu is held.
//
// # Waiting
//
// No goroutine polls. A goroutine that waits for a command reads the channel's completion ring
// itself: it first polls, for no longer than recent waits showed to pay off, then sleeps until the
// device interrupts. When several goroutines wait on one channel, one of them, the leader, reads
// for all. Completions that nobody waits for stay in the ring until somebody waits or the ring
// needs the room.
//
// # Preemptible kernels
//
// If a context asks for it ([ContextOptions].Preempt, or the agent's setting), LoadModule has
// package preempt make preemptible forms of a module's kernels (variants.go). Each launch uses the
// form that measured best in the kernel's earlier launches (forms.go, package tune). The program
// sees one kernel. A kernel that has no form, or whose forms the host refuses, runs as it was
// written, with a reason ([Function.Preemption]). A goroutine of the context hands what was learned
// to a [Memory] (learn.go); no launch waits for that.
//
// # A device that goes away
//
// A virtual GPU can be unplugged, and the host's process behind it can end. Every call then returns
// [ErrGone] with the cause. A bus notices by the kernel's notification (vfio's request, an event),
// by reading a register once a second, and by a fault: the memory of a device that is gone may be
// unmapped, which raises SIGBUS. All accesses to that memory therefore run under
// debug.SetPanicOnFault, and once the device is known to be gone the bus maps memory of this
// process over the device's. After that no access faults, none reaches another device at the same
// address, and nothing here keeps the kernel from removing the device.
package driver
