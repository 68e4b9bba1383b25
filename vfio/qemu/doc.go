// Package qemu boots QEMUs with vfio-user devices, for tests and for the demo
// with real VMs.
//
// A VM is x86-64, q35, emulated (TCG) unless told otherwise, with a kernel, an
// initramfs and a QEMU from the directory that `make vm-deps` fills: [Find].
// [Start] starts QEMU, [VM.Ready] waits for the guest, [VM.Run] runs a program
// in it, and [VM.Close] must be called in the end:
//
//	deps, err := qemu.Find("")
//	vm, err := qemu.Start(ctx, qemu.Options{Deps: deps, Devices: []qemu.Device{{ID: "vgpu0", Socket: path}}})
//	defer vm.Close()
//	err = vm.Ready(ctx)
//	p, err := vm.Run(ctx, qemu.Command{Args: []string{"/bin/demoguest"}, Stdin: plan})
//	for line := range p.Lines() { … }
//	err = p.Wait()
//
// QEMU is a child of this process, and is killed when this process ends,
// however that happens. It has its monitor on a socket ([VM.QMPSocket]), the
// guest's kernel console on the first serial port (Options.Log), and package
// console's line to the guest's init on the second.
//
// Nothing here waits by polling, and nothing waits for ever: what waits takes a
// context, and ends when QEMU does, with an error that has QEMU's last words and
// the guest's.
package qemu
