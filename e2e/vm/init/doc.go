// Command init is the first process of the guests that vfio/qemu boots: all
// that there is in them beside the agent and what a test runs.
//
// It mounts the kernel's file systems, loads the modules that the initramfs
// brings, starts /bin/vgpu-agent where there is one, and then does what the
// host asks for over the second serial port (vfio/qemu/console). What it and the
// agent have to say goes to the first one, the kernel's console.
//
// Run as another process, `/init look PATH...` prints files and directories of
// the guest.
//
// The first process never returns: a guest whose init ends panics. An error before the port is
// open powers the guest off, which the host sees at once.
package main
