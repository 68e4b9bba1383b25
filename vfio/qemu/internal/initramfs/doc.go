// Command initramfs packs files into an initramfs for the guests of vfio/qemu:
//
//	initramfs -o FILE NAME=PATH ...
//
// NAME is the path in the guest of the local file PATH, whose permissions are kept. The command
// adds parent directories and /dev/console, which the kernel opens for init before any file system
// is mounted. Kernel modules (.ko) lose their signatures. The same files give the same archive.
package main
