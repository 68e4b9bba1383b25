// Package vm implements `vgpud vm`, the process of one guest's virtual GPU. It owns the vfio-user
// socket that the guest's VMM connects to, serves the device model (package vgpu) on it, and runs
// one executor process for each of the guest's contexts.
//
// It loads no GPU driver and parses nothing of the guest's but register accesses, so that a GPU
// fault or a bad module ends one executor while the device and the guest's other contexts go on. It
// works without the daemon, which finds it by its control socket and shares its control page
// (package ipc).
//
// Flow: [Run] accepts the VMM; the device calls executors, its backend, for each context and
// channel; a process carries the calls to its executor as messages and the answers back to the
// device; control tells the daemons of contexts, channels and handles.
//
// Locks: process.vectors is taken before process.mu, and that before the device's lock and control.mu;
// executors.mu is held alone. The device calls its backend without a lock.
package vm
