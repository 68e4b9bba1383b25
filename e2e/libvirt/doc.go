// Package libvirt tests vgpud with a real libvirt: Debian's daemon and QEMU, as `make vm-deps`
// unpacks them, our hook, our daemon and a soft GPU. The domains are emulated VMs with a real
// guest.
//
// A machine of this test is a root directory with mount, process and network namespaces of its own:
// it does not touch the host's libvirt, /run or /etc, and when the test ends in any way, the kernel
// ends all processes in it. The test needs root.
package libvirt
