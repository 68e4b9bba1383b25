// Package nvreg knows where NVIDIA's GPUs from Ampere on show what they execute: offsets of
// registers in BAR0, and encoders and decoders of their fields. The soft GPU keeps a page of this
// layout, and accounting reads it with the instructions that it reads a mapped BAR0 with. Both use
// this one package, so that they can't disagree.
//
// Names and layouts are those of NVIDIA's open-gpu-doc, manuals/ampere/ga100 (dev_boot, dev_timer
// and dev_runlist), and of the published dev_top.h (NV_PTOP_DEVICE_INFO2) of the open GPU kernel
// modules.
//
// # How to find what executes
//
// [FindGraphics] walks the device table (NV_PTOP_DEVICE_INFO2) to the graphics engine, which is
// also the compute engine, and to the runlist that feeds it. That runlist's registers have an
// [EngineStatus] for each of its engines, with the channel group on the engine, the context switch
// in progress, and a busy bit. They also tell where in BAR0 the entries of the runlist's channels
// are ([ChannelEntry]).
//
// # Time
//
// PTIMER counts nanoseconds in steps of 32. A GPU's PTIMER ticks. A page in memory can't tick, so
// the soft GPU declares its clock to be the host's CLOCK_MONOTONIC, and with each change of status
// stores the instant of that change into PTIMER. A reader therefore stamps its readings with
// CLOCK_MONOTONIC, which costs 20 ns where PTIMER costs three reads over PCIe. It adds the offset
// found by [Calibrate], which is zero if PTIMER doesn't tick by itself. The polling loop is thus
// the same for both: one load and one stamp.
package nvreg
