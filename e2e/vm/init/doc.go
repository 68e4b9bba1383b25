// Command init is the first process of the guests that vfio/qemu boots. The agent and the programs
// that a test runs are the only others.
//
// It mounts the kernel's file systems, loads the modules in the initramfs, starts /bin/vgpu-agent
// if it exists, and then executes the host's requests on the second serial port
// (vfio/qemu/console). Its output and the agent's go to the first port, the kernel's console.
//
// If the initramfs has a /plan.json, init executes no requests: /bin/demoguest does that plan, with its
// reports on the kernel's console, and the power button powers the guest off. Such guests are Nova's.
//
// As another process, `/init look PATH...` prints files and directories of the guest. In a guest with
// an init of its own, such as systemd, `init serve` is a service that executes the requests and does
// nothing else.
//
// The first process never returns: a guest whose init ends panics. An error before the port is open
// powers the guest off, which the host notices at once.
package main
