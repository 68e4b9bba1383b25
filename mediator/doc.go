// Package mediator holds only this overview of the host service. Its packages are:
//
//   - daemon: the life of guests: configuration, creation, adoption, saved state, metrics and
//     the implementation of the API.
//   - scheduler: one GPU's loop: status source, accounting, policy and verdicts.
//   - launchqueue: launches that wait or run, for policies about kernels; pure.
//   - vm: `vgpud vm`, one guest's process, which serves the guest's virtual GPU.
//   - vgpu and vgpu/abi: the virtual GPU itself, and what host and guest agree on.
//   - executor: `vgpud exec`, which carries out the commands of one guest context.
//   - suspend: the desired and the actual state of guest contexts on the hardware.
//   - ipc: what the host's processes share and say to each other.
//   - sandbox: user, mounts, control group and system calls of a guest's processes.
//   - libvirt: domains, their XML and their QEMU monitors.
//   - statefile: small files that survive a crash, read with bounds.
//   - exposition: metrics of many guests in Prometheus' text format.
//   - api: HTTP and JSON over a unix socket, with its client.
package mediator
