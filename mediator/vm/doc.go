// Package vm is `vgpud vm`, the process of one guest's virtual GPU: it holds
// the vfio-user socket that the guest's VMM connects to, serves the device model
// (package vgpu) on it, and keeps one executor process for each of the guest's
// contexts.
//
// It loads no GPU driver and parses nothing of the guest's but registers, so that
// a GPU fault or a bad module ends one executor, while the device and the guest's
// other contexts go on. The daemon finds it by its control socket and talks to
// it through the guest's page (package link); it needs the daemon for nothing.
package vm
