// Package agent is what vgpu-agent does: it finds the virtual GPUs of a guest as
// they come and go, prepares them for use, checks that they compute, and shares one
// among several programs.
package agent
