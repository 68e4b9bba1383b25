// Package libvirt tests vgpud together with a real libvirt: Debian's daemon and
// QEMU, as `make vm-deps` unpacks them, our hook, our daemon and a soft GPU. The
// domains are emulated VMs with a real guest.
//
// A house of this test is a root directory of its own, in a namespace of its own
// for mounts, processes and networks: nothing of the machine's libvirt, /run or
// /etc is touched, and when the test ends, however that happens, the kernel ends
// all that ran in it. That takes root.
package libvirt
