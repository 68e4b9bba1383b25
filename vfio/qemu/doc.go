// Package qemu boots QEMUs with vfio-user devices, for tests and for the demo with real VMs. It is
// not used by the service.
//
// A VM is x86-64, q35, and emulated (TCG) by default. Its kernel, initramfs and QEMU are in the
// directory that `make vm-deps` fills: [Find]. [Start] starts QEMU, [VM.Ready] waits for the guest,
// [VM.Run] runs a program in it, and [VM.Close] must be called at the end:
//
//	deps, err := qemu.Find("")
//	vm, err := qemu.Start(ctx, qemu.Options{Deps: deps, Devices: []qemu.Device{{ID: "vgpu0", Socket: path}}})
//	defer vm.Close()
//	err = vm.Ready(ctx)
//	p, err := vm.Run(ctx, qemu.Command{Args: []string{"/bin/demoguest"}, Stdin: plan})
//	for line := range p.Lines() { … }
//	err = p.Wait()
//
// QEMU is a child of this process and is killed when this process ends, however it ends. Its
// monitor is on a socket ([VM.QMPSocket]), the guest's kernel console on the first serial port
// (Options.Log), and the connection of package console to the guest's init on the second.
//
// Nothing polls. Every wait takes a context and ends when QEMU does, with an error that includes
// the last output of QEMU and of the guest.
package qemu
