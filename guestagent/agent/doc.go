// Package agent implements vgpu-agent: it finds the virtual GPUs of a guest as they come and go,
// prepares them for use, checks that they compute correctly, and shares each among several
// programs. It is not on the path of launches or copies: programs access the device directly, and
// only slots are controlled through the agent (package allot).
//
// [Agent.Run] follows the devices, [Agent.Serve] answers programs. Locks are taken in this order:
// the opening lock of a device's address, Agent.mu, sharedDevice.mu. sharedDevice.regs is held for
// no other lock.
package agent
