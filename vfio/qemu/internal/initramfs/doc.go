// Command initramfs packs files into an initramfs for the guests of
// vfio/qemu:
//
//	initramfs -o FILE NAME=PATH ...
//
// NAME is where the guest has what is at PATH here, with its permissions. The
// directories above and /dev/console, which the kernel opens for init before
// any file system is mounted, are added; kernel modules (.ko) lose their
// signatures. The same files give the same archive.
package main
